"""Pods that are taken out of the queue though it is not their turn, to be decided on with another one."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.events import events as ev

from .queue_world import Gate, World, on, pod


def test_a_pod_is_taken_past_its_betters_and_is_in_flight_then() -> None:
    world = World()
    low = pod("low")
    for each in (pod("high", priority=9), low):
        world.queue.add(each)
    entry = world.queue.take(low.uid)
    assert entry is not None and entry.pod is low
    assert (entry.attempts, entry.urgent) == (1, 0)
    assert world.where(low) == "in_flight"
    assert world.pop_names() == ["high"]


def test_a_pod_that_backs_off_or_was_refused_is_taken_with_its_history() -> None:
    world = World({"foo": [on(ev.NODE_ADD)]})
    backing_off, refused = pod("backing-off"), pod("refused")
    world.queue.add_unschedulable(world.try_pod(backing_off))
    world.queue.add_unschedulable(world.try_pod(refused), unschedulable_plugins={"foo"})
    assert (world.where(backing_off), world.where(refused)) == ("backoff", "unschedulable")
    for each in (backing_off, refused):
        entry = world.queue.take(each.uid)
        assert entry is not None
        assert entry.attempts == 2
        assert world.where(each) == "in_flight"
    assert world.recorder.waiting_because_of("foo") == 0


def test_who_is_gated_in_flight_or_unknown_is_not_taken() -> None:
    world = World(gates=[Gate("gate", lambda each: each.name == "gated")])
    gated, flying = pod("gated"), pod("flying")
    world.queue.add(gated)
    world.try_pod(flying)
    assert [world.queue.take(uid) for uid in (gated.uid, flying.uid, "nobody")] == [None] * 3
    assert world.where(gated) == "gated"


def test_a_pod_whose_gate_has_opened_is_taken_before_it_was_told() -> None:
    held = {"late"}
    world = World(gates=[Gate("gate", lambda each: each.name in held)])
    late = pod("late")
    world.queue.add(late)
    held.clear()
    entry = world.queue.take(late.uid)
    assert entry is not None and not entry.gated
    assert entry.initial_attempt_timestamp is not None


def test_another_gate_than_before_holds_a_pod_under_its_own_name() -> None:
    closed = {"first"}
    gates = [Gate(name, lambda each, name=name: name in closed) for name in ("first", "second")]
    world = World({"first": [], "second": []}, gates=gates)
    held = pod("held")
    world.queue.add(held)
    closed.clear()
    closed.add("second")
    assert world.queue.take(held.uid) is None
    assert world.where(held) == "gated"


@pytest.mark.parametrize("event", [ev.NODE_ADD, ev.NODE_DELETE])
def test_what_happens_while_a_taken_pod_is_tried_is_put_to_it_when_it_fails(event: ev.ClusterEvent) -> None:
    world = World({"foo": [on(ev.NODE_ADD)]})
    mate = pod("mate")
    world.queue.add(mate)
    entry = world.queue.take(mate.uid)
    assert entry is not None
    world.queue.move_all(event)
    world.queue.add_unschedulable(entry, unschedulable_plugins={"foo"})
    assert world.where(mate) == ("backoff" if event is ev.NODE_ADD else "unschedulable")
