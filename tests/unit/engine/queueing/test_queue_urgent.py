"""Pods that lost a race for a node: back before all others, but not for ever."""

from __future__ import annotations

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.queueing.subqueues import QueueSettings

from .queue_world import Gate, World, on, pod


def test_pods_that_lost_a_race_are_popped_before_every_other_and_by_priority_and_age_among_themselves():
    world = World()
    entries = []
    refused = pod("refused", priority=1)
    world.refuse(refused, "foo")
    world.queue.move_all(ev.NODE_ADD, None, object())
    for name, priority in (("old", 1), ("young", 1), ("high", 5)):
        world.queue.add(pod(name, priority=priority))
        world.clock.step(1)
    while (entry := world.queue.pop()) is not None:
        entries.append(entry)
    world.queue.add(pod("important", priority=1000))
    newer = pod("old", priority=1, labels={"app": "x"})
    world.queue.add(newer)
    began, ready = world.clock.now - 3, world.ready
    assert all(world.queue.requeue_urgent(entry) for entry in reversed(entries))
    assert world.ready == ready + 4 == ready + world.incoming("active", "UrgentRetry")
    assert world.recorder.waiting_because_of("foo") == 0 and world.in_flight_timeline() == []
    again = [world.pop() for _ in range(5)]
    assert [entry.pod.name for entry in again] == ["high", "refused", "old", "young", "important"]
    assert again[2].pod is newer and (again[2].attempts, again[2].initial_attempt_timestamp) == (2, began)


def test_a_pod_that_always_loses_backs_off_after_its_urgent_retries():
    world = World()
    entry = world.try_pod(pod("loser"))
    world.queue.add(pod("patient"))
    granted = []
    for _ in range(6):
        granted.append(world.queue.requeue_urgent(entry))
        if granted[-1]:
            assert world.pop() is entry
    assert granted == world.recorder.urgent == [True] * 5 + [False]
    assert world.where(entry.pod) == "backoff"
    assert world.pop().pod.name == "patient"
    assert world.queue.pop() is None, "it backs off as after an error and is not popped early"


def test_a_pod_that_lost_many_races_waits_no_longer_than_one_that_lost_a_few():
    """Each race it lost was won by another; under `strict` the last free node stood idle for minutes otherwise."""
    world = World(settings=QueueSettings(max_urgent_retries=1))
    entry = world.try_pod(pod("loser"))
    waits = []
    for _ in range(3):
        assert world.queue.requeue_urgent(entry)
        assert world.queue.pop() is entry
        assert not world.queue.requeue_urgent(entry)
        waits.append(entry.backoff_expiration - world.clock.now)
        world.clock.now = entry.backoff_expiration
        world.queue.flush_backoff()
        assert world.queue.pop() is entry
    assert waits == [2, 2, 2]


def test_a_refusal_by_a_plugin_gives_a_pod_its_urgent_retries_back():
    world = World(settings=QueueSettings(max_urgent_retries=1))
    entry = world.try_pod(pod("loser"))
    assert world.queue.requeue_urgent(entry)
    world.queue.add_unschedulable(world.pop(), unschedulable_plugins=["foo"])
    assert entry.urgent == 0
    world.queue.move_all(ev.NODE_ADD, None, object())
    assert world.queue.requeue_urgent(world.pop())


def test_an_urgent_pod_that_failed_otherwise_is_an_ordinary_pod_again():
    world = World()
    entry = world.try_pod(pod("loser"))
    world.queue.requeue_urgent(entry)
    world.queue.add_unschedulable(world.pop())
    world.clock.step(60)
    world.queue.add(pod("important", priority=10))
    world.queue.flush_backoff()
    assert world.pop_names() == ["important", "loser"]


def test_a_gate_holds_an_urgent_pod_too():
    closed = set()
    world = World({"gate": [on(ev.NODE_ADD)]}, gates=[Gate("gate", lambda one: one.name in closed)])
    entry = world.try_pod(pod("loser"))
    closed.add("loser")
    assert not world.queue.requeue_urgent(entry)
    assert world.where(entry.pod) == "gated"
    closed.clear()
    world.queue.add(pod("important", priority=10))
    world.queue.move_all(ev.NODE_ADD, None, object())
    assert world.pop_names() == ["important", "loser"]
