"""Waking in portions: nobody is asked twice, nobody is forgotten, and whoever looks in between sees a whole queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.hints import HintMap, QueueingHint
from agent_scheduler.engine.queueing import waking
from agent_scheduler.engine.queueing.subqueues import QueueSettings

from .queue_world import QUEUE, SKIP, Gate, Hint, Pod, World, on, pod, replace, scheduling_gates

NODE = object()


def refused(*pods: Pod, portion: int = 1, hint: Callable[..., QueueingHint] | None = None, **more: Any) -> World:
    """`foo` refused them all, and wakes them when there is a node; one is asked about at a time."""
    world = World({"foo": [on(ev.NODE_ADD, hint)], "bar": [on(ev.ASSIGNED_POD_DELETE)]}, **more)
    world.queue.waker.portion = portion
    for one in pods:
        world.clock.step(1)
        world.refuse(one, "foo")
    world.clock.step(60)
    return world


def finish(world: World) -> int:
    """Until nothing is left; how many portions that took."""
    portions = 0
    while world.queue.next_deadline() == world.clock.now:
        world.queue.go_on()
        world.queue.check_invariants()
        portions += 1
        assert portions < 1000, "there is no end to it"
    return portions


def places(world: World, *pods: Pod) -> list[str | None]:
    return [world.where(one) for one in pods]


def test_the_rest_is_left_to_go_on_and_whoever_has_to_call_it_is_told() -> None:
    pods = [pod(f"p{number}") for number in range(10)]
    world = refused(*pods, portion=20)
    world.queue.next_deadline()
    told = world.deadlines
    assert world.queue.move_all(ev.NODE_ADD, None, NODE) < 3
    assert world.deadlines > told
    assert world.queue.next_deadline() == world.clock.now
    counts = world.queue.pending()
    assert counts.active + counts.unschedulable == 10
    assert finish(world) > 2
    assert places(world, *pods) == ["active"] * 10
    assert world.pop_names() == [one.name for one in pods]


def test_a_small_event_is_over_at_once() -> None:
    pods = [pod(f"p{number}") for number in range(10)]
    world = refused(*pods, portion=waking.PORTION)
    assert world.queue.move_all(ev.NODE_ADD, None, NODE) == 10
    assert finish(world) == 0


def test_the_highest_priority_goes_first_and_then_who_has_waited_the_longest() -> None:
    pods = [pod(f"p{number}", priority=number % 3) for number in range(9)]
    world = refused(*pods)
    world.queue.move_all(ev.NODE_ADD, None, NODE)
    popped: list[str] = []
    while finish_one(world):
        popped += world.pop_names()
    popped += world.pop_names()
    assert popped == ["p2", "p5", "p8", "p1", "p4", "p7", "p0", "p3", "p6"]


def finish_one(world: World) -> bool:
    world.queue.go_on()
    return world.queue.next_deadline() == world.clock.now


def test_a_pod_that_changes_is_first_put_what_it_was_not_asked_yet() -> None:
    """With its old version: the event came before the change."""
    asked: list[int] = []

    def hint(waiting: Pod, old: object, new: object) -> QueueingHint:
        asked.append(waiting.priority)
        return QUEUE if waiting.priority == 0 else SKIP

    first, second = pod("a", priority=5), pod("b")
    world = refused(first, second, hint=hint)
    world.queue.move_all(ev.NODE_ADD, None, NODE)
    world.queue.add(replace(second, priority=1, labels={"new": "label"}))
    assert world.where(second) == "active"
    finish(world)
    assert sorted(asked) == [0, 5]
    assert world.where(first) == "unschedulable"


def test_a_pod_that_stays_after_it_changed_is_not_asked_again() -> None:
    hint = Hint(SKIP)
    first, second = pod("a"), pod("b")
    world = refused(first, second, hint=hint)
    world.queue.move_all(ev.NODE_ADD, None, NODE)
    world.queue.add(replace(second, labels={"new": "label"}))
    finish(world)
    assert sorted(hint.asked) == ["a", "b"]


def test_new_rules_come_after_all_that_happened_before() -> None:
    hint = Hint(SKIP)
    gate, gate_events = scheduling_gates()
    pods = [pod(f"p{number}") for number in range(4)]
    world = refused(*pods, hint=hint, gates=[gate])
    world.queue.move_all(ev.NODE_ADD, None, NODE)
    world.queue.reconfigure(
        hint_maps={"agent-scheduler": HintMap({"other": [], gate.name: gate_events})},
        pre_enqueue={"agent-scheduler": [Gate("never", lambda one: False)]},
        settings=QueueSettings(),
    )
    assert sorted(hint.asked) == ["p0", "p1", "p2", "p3"]
    finish(world)
    assert places(world, *pods) == ["active"] * 4


def test_more_events_than_can_be_kept_make_their_sender_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waking, "_MOST_EVENTS", 5)
    hint = Hint(SKIP)
    world = refused(*(pod(f"p{number}") for number in range(4)), hint=hint)
    for number in range(50):
        world.queue.move_all(ev.NODE_ADD, None, number)
        assert world.queue.waker.backlog <= 6
    finish(world)
    assert len(hint.asked) == 4 * 50


def test_what_a_plugin_tells_while_it_is_asked_has_its_turn() -> None:
    world: World

    def hint(waiting: Pod, old: object, new: object) -> QueueingHint:
        if new is NODE:
            world.queue.move_all(ev.ASSIGNED_POD_DELETE, pod("gone"))
        return SKIP

    one, other = pod("a"), pod("b")
    world = refused(one, hint=hint)
    world.refuse(other, "bar")
    world.queue.move_all(ev.NODE_ADD, None, NODE)
    finish(world)
    assert places(world, one, other) == ["unschedulable", "backoff"]


def test_a_plugin_that_breaks_what_asks_it_is_not_in_the_way_of_later_events() -> None:
    pods = [pod(f"p{number}") for number in range(3)]
    world = refused(*pods)

    def broken(one: Pod) -> bool:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError):
        world.queue.move_all(ev.NODE_ADD, None, NODE, pre_check=broken)
        finish(world)
    world.queue.move_all(ev.NODE_ADD, None, NODE)
    finish(world)
    assert places(world, *pods) == ["active"] * 3


def test_of_many_whose_backoff_ends_at_once_some_are_moved_at_a_time() -> None:
    pods = [pod(f"p{number}") for number in range(1200)]
    world = World()
    for one in pods:
        world.queue.add(one)
    for number, _ in enumerate(pods):
        world.queue.add_unschedulable(world.pop(), unschedulable_plugins=["foo"] if number % 4 else [])
    world.queue.move_all(ev.NODE_ADD, None, NODE)
    finish(world)
    world.clock.step(60)
    moved = []
    while (deadline := world.queue.next_deadline()) is not None and deadline <= world.clock.now:
        moved.append(world.queue.flush_backoff())
    assert moved == [500, 500, 200]
    assert sorted(world.pop_names()) == sorted(one.name for one in pods)


def test_of_many_that_no_event_woke_some_are_retried_at_a_time() -> None:
    pods = [pod(f"p{number}") for number in range(1200)]
    world = refused(*pods)
    world.clock.step(2000)
    moved = []
    while (deadline := world.queue.next_deadline()) is not None and deadline <= world.clock.now:
        moved.append(world.queue.flush_unschedulable_leftovers())
    assert moved == [500, 500, 200]
    assert world.queue.pending().unschedulable == 0
