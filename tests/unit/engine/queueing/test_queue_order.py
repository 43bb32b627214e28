"""Who is popped first: cases 1 to 12 of the study of kube-scheduler's queue."""

from __future__ import annotations

from collections import deque

import pytest

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.queueing.queue import QueueError
from agent_scheduler.engine.queueing.subqueues import QueueSettings

from .queue_world import World, gated_world, on, pod, replace


@pytest.mark.parametrize("seconds", [0.0, 0.001])
def test_cases_01_and_02_pods_are_popped_by_priority_and_then_in_order_of_arrival(seconds: float):
    world = World()
    names = [f"pod-{index}" for index in range(50)]
    for index, name in enumerate(names):
        world.queue.add(pod(name, priority=index % 3))
        world.clock.step(seconds)
    assert world.pop_names() == [*names[2::3], *names[1::3], *names[0::3]]


def test_case_03_a_popped_pod_stays_nominated():
    world = World()
    entry = world.try_pod(pod("a", nominated_node_name="node-1"))
    assert world.queue.nominator.pods_for("node-1") == (entry.pod,)


def test_case_04_a_recently_tried_pod_is_popped_after_a_never_tried_one():
    world = World()
    tried = pod("tried")
    world.refuse(tried, "foo")
    world.queue.add(pod("new"))
    world.clock.step(20)
    world.queue.move_all(ev.NODE_ADD, None, object())
    assert world.pop_names() == ["new", "tried"]


def test_case_05_a_pod_that_fails_again_and_again_does_not_block_a_newer_one_of_its_priority():
    world = World()
    world.refuse(pod("stubborn"), "foo")
    for _ in range(4):
        world.clock.step(20)
        world.queue.move_all(ev.NODE_ADD, None, object())
        entry = world.pop()
        world.queue.add(pod("newer"))
        world.queue.add_unschedulable(entry, unschedulable_plugins=["foo"])
        world.clock.step(20)
        world.queue.move_all(ev.NODE_ADD, None, object())
        assert world.pop().pod.name == "newer"
        world.queue.done("newer-uid")
        world.queue.add_unschedulable(world.pop(), unschedulable_plugins=["foo"])


def test_case_06_a_pod_of_high_priority_that_backs_off_does_not_block_an_active_one():
    world = World()
    high = pod("high", priority=100)
    world.refuse(high, "foo")
    world.queue.move_all(ev.NODE_ADD, None, object())
    assert world.where(high) == "backoff"
    world.queue.add(pod("mid", priority=50))
    assert world.pop().pod.name == "mid"


def test_case_07_close_wakes_whoever_waits_and_pop_gives_nothing():
    """The queue itself never blocks. A loop waits for `on_ready` and pops again; here its wait is a latch."""
    world = World()
    wakes: deque[None] = deque()
    world.queue._on_ready = lambda: wakes.append(None)
    assert world.queue.pop() is None
    assert not wakes
    world.queue.close()
    assert len(wakes) == 1
    assert world.queue.pop() is None
    assert world.queue.closed


def test_after_close_not_even_a_waiting_pod_is_popped():
    world = World()
    world.queue.add(pod("a"))
    world.queue.close()
    assert world.queue.pop() is None


def test_case_08_a_pod_that_is_added_again_in_flight_is_not_popped_twice():
    """kube-scheduler takes the duplicate in and throws it away when it is popped. Here it is not taken in: the
    invariant that a pod is in one place holds at every instant, and what may be a change is not lost."""
    world = World()
    one = pod("a")
    entry = world.try_pod(one)
    world.queue.add(one)
    assert world.queue.pop() is None
    world.queue.done(entry.uid)
    assert world.where(one) is None
    assert world.queue.pending() == (0, 0, 0, 0, 0)
    assert world.in_flight_timeline() == []


def test_case_09_attempts_count_pops_and_the_first_attempt_is_remembered():
    world = World()
    one = pod("a")
    world.queue.add(one)
    began = world.clock.now
    for attempt in range(1, 5):
        entry = world.pop()
        assert entry.attempts == attempt
        assert entry.initial_attempt_timestamp == began
        world.queue.add_unschedulable(entry, unschedulable_plugins=["foo"])
        assert entry.attempts == attempt
        world.clock.step(60)
        one = replace(one, labels={"try": str(attempt)})
        world.queue.add(one)
        world.queue.move_all(ev.NODE_ADD, None, object())
    assert world.pop().initial_attempt_timestamp == began


def test_a_pod_that_is_added_again_while_it_waits_keeps_its_history_and_its_place():
    """A relist offers every pod anew; that must not cost a pod its attempts, nor let it skip its backoff."""
    world = World()
    one = pod("a")
    world.refuse(one, "foo")
    world.queue.add(replace(one, phase="Pending again"))
    assert world.where(one) == "unschedulable"
    world.queue.move_all(ev.NODE_ADD, None, object())
    world.queue.add(one)
    assert world.where(one) == "backoff"
    assert world.pop().attempts == 2


def test_case_10_time_behind_a_gate_does_not_count_as_waiting_for_an_attempt():
    world, _ = gated_world()
    gated = pod("a", gates=("hold",))
    world.queue.add(gated)
    world.clock.step(3600)
    world.queue.add(replace(gated, gates=()))
    entry = world.pop()
    assert entry.initial_attempt_timestamp == world.clock.now
    assert entry.attempts == 1


@pytest.mark.parametrize(("refused", "allowed"), [(True, True), (True, False), (False, True)])
def test_case_11_a_refused_pod_leaves_its_backoff_early_where_that_is_allowed_and_nothing_is_active(
    refused: bool, allowed: bool
):
    world = World(settings=QueueSettings(pop_from_backoff=allowed))
    one, early = pod("a"), refused and allowed
    world.queue.add_unschedulable(world.try_pod(one), unschedulable_plugins=["foo"] if refused else [])
    ready = world.ready
    world.queue.move_all(ev.NODE_ADD, None, object())
    assert world.where(one) == "backoff"
    assert world.ready == ready + early
    if not early:
        assert world.queue.pop() is None
        world.clock.step(2)
        assert world.queue.flush_backoff() == 1
    assert world.pop().pod is one
    assert world.incoming("active", "PopFromBackoffQ") == early


def test_pods_that_leave_their_backoff_early_go_by_window_and_then_by_priority():
    world = World({"foo": [on(ev.NODE_ADD)]})
    for name, priority, wait in (("low", 1, 0.1), ("high", 9, 1.0), ("later", 99, 0.0)):
        world.refuse(pod(name, priority=priority), "foo")
        world.clock.step(wait)
    world.clock.now = 1001.5
    assert world.queue.move_all(ev.NODE_ADD, None, object()) == 3
    assert world.queue.pending().backoff == 3
    assert world.pop_names() == ["high", "low", "later"]


def test_case_12_a_popped_pod_still_knows_who_refused_it():
    world = World()
    world.refuse(pod("a"), "foo", pending=("bar",))
    world.queue.move_all(ev.NODE_ADD, None, object())
    entry = world.pop()
    assert entry.unschedulable_plugins == {"foo"}
    assert entry.pending_plugins == {"bar"}


def test_a_pod_of_an_unknown_profile_is_refused_with_the_profiles_there_are():
    world = World()
    with pytest.raises(QueueError, match=r"ns/a asks for scheduler 'other'.*\['agent-scheduler'\]"):
        world.queue.add(pod("a", scheduler_name="other"))
    assert world.where(pod("a")) is None
