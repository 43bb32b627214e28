"""Room that was kept for a nominated pod and is kept no longer: who had to leave it to that pod is tried again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent_scheduler.engine.events import events as ev

from .queue_world import Gate, Pod, World, on, pod


def kept_room(**fields: object) -> tuple[World, Pod, Pod]:
    """A pod that is nominated, and another one that was refused for it."""
    world = World({"fit": [on(ev.ASSIGNED_POD_DELETE)]})
    first, other = pod("first", priority=5), pod("other", **fields)
    for each in (first, other):
        world.refuse(each, "fit")
    world.queue.nominate(first, "node-1")
    return world, first, other


@pytest.mark.parametrize(
    "end",
    [
        lambda world, first: world.queue.nominate(first, ""),
        lambda world, first: world.queue.nominate(first, "node-2"),
        lambda world, first: world.queue.delete(first.uid),
        lambda world, first: world.queue.delete(first.uid, node_name="node-2"),
        lambda world, first: world.queue.add(replace(first, nominated_node_name="node-2")),
    ],
    ids=["useless", "moved", "deleted", "bound elsewhere", "moved by somebody else"],
)
def test_the_end_of_a_nomination_wakes_who_had_to_leave_the_room(end: Callable[[World, Pod], None]) -> None:
    world, first, other = kept_room()
    end(world, first)
    assert world.where(other) == "backoff"
    assert world.where(first) in ("unschedulable", None)


def test_room_that_the_pod_has_taken_wakes_nobody() -> None:
    world, first, other = kept_room()
    world.queue.delete(first.uid, node_name="node-1")
    assert world.where(other) == "unschedulable"


def test_a_nomination_that_is_made_again_wakes_nobody() -> None:
    world, first, other = kept_room()
    world.queue.nominate(first, "node-1")
    world.queue.add(replace(first, resource_version="2"))
    assert world.where(other) == "unschedulable"


def test_a_pod_that_was_not_held_back_by_the_nomination_is_left_alone() -> None:
    world, first, other = kept_room(priority=6)
    world.queue.nominate(first, "")
    assert world.where(other) == "unschedulable"


@pytest.mark.parametrize("activates", [True, False], ids=["by the end of a wait", "by an event"])
def test_a_gate_that_ends_a_nomination_wakes_the_others_when_it_is_done(activates: bool) -> None:
    closed = False

    def holds(one: Pod) -> bool:
        if closed and one.priority:
            world.queue.nominate(one, "", in_gate=True)
        return closed and one.priority > 0

    plugins = {"fit": [on(ev.NODE_ADD)], "room": [on(ev.ASSIGNED_POD_DELETE)]}
    world = World(plugins, gates=[Gate("gate", holds)])
    first, others = pod("first", priority=5), [pod(f"other-{number}") for number in range(3)]
    world.refuse(first, "fit")
    for each in others:
        world.refuse(each, "room")
    world.queue.nominate(first, "node-1")
    closed = True
    if activates:
        world.queue.activate([first.uid])
        assert [world.where(each) for each in others] == ["unschedulable"] * 3
        assert world.queue.next_deadline() == world.clock.now
        world.queue.go_on()
    else:
        world.queue.move_all(ev.NODE_ADD, None, object())
    world.queue.check_invariants()
    assert world.where(first) == "gated"
    assert [world.where(each) for each in others] == ["backoff"] * 3
