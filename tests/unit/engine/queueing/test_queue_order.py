"""Who is popped first: cases 1 to 12 of the study of kube-scheduler's queue, but for what the model holds."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.queueing.queue import QueueError
from agent_scheduler.engine.queueing.subqueues import QueueSettings

from .queue_world import World, on, pod, replace


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


def test_new_pods_take_turns_with_retries_in_vain_of_the_same_priority_until_a_retry_succeeds():
    """Many pods that each event wakes and that fit nowhere delay a new pod by the time of one attempt."""
    world = World(settings=QueueSettings(max_backoff=0))
    waiting = [pod(f"w{index:02d}") for index in range(20)]
    for each in waiting:
        world.refuse(each, "foo")
    world.queue.move_all(ev.NODE_ADD, None, object())
    for index in range(3):
        world.queue.add(pod(f"new{index}"))
    world.queue.add(pod("low", priority=-1))
    popped = []
    for _ in range(16):
        entry = world.pop()
        popped.append(entry.pod.name)
        if entry.attempts > 1:
            world.queue.add_unschedulable(entry, unschedulable_plugins=["foo"])
    in_vain = [each.name for each in waiting]
    assert popped == [*in_vain[:8], "new0", in_vain[8], "new1", in_vain[9], "new2", *in_vain[10:13]]
    world.queue.scheduled(world.pop())
    world.queue.add(pod("new3"))
    assert world.pop_names() == [*in_vain[14:], "new3", "low"]


def test_case_07_close_wakes_whoever_waits_and_pop_gives_nothing():
    """The queue itself never blocks. A loop waits for `on_ready` and pops again."""
    world = World()
    assert world.queue.pop() is None and not world.ready
    world.queue.add(pod("a"))
    ready = world.ready
    world.queue.close()
    assert world.ready == ready + 1
    assert world.queue.pop() is None, "not even a pod that waits"
    assert world.queue.closed


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
