"""Room that was kept for a nominated pod and is kept no longer: who had to leave it to that pod is tried again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.queueing.queue import SchedulingQueue

from .queue_world import Gate, Pod, World, on, pod


@pytest.mark.parametrize(
    ("end", "woken"),
    [
        # The nomination ends: it is useless, moved, or the pod is deleted, bound elsewhere, or moved by somebody else.
        (lambda queue, first: queue.nominate(first, ""), True),
        (lambda queue, first: queue.nominate(first, "node-2"), True),
        (lambda queue, first: queue.delete(first.uid), True),
        (lambda queue, first: queue.delete(first.uid, node_name="node-2"), True),
        (lambda queue, first: queue.add(replace(first, nominated_node_name="node-2")), True),
        # The pod has taken the room, or keeps it.
        (lambda queue, first: queue.delete(first.uid, node_name="node-1"), False),
        (lambda queue, first: queue.nominate(first, "node-1"), False),
        (lambda queue, first: queue.add(replace(first, resource_version="2")), False),
    ],
)
def test_the_end_of_a_nomination_wakes_who_had_to_leave_the_room_and_nobody_else(
    end: Callable[[SchedulingQueue, Pod], None], woken: bool
) -> None:
    world = World({"fit": [on(ev.ASSIGNED_POD_DELETE)]})
    first, other, better = pod("first", priority=5), pod("other"), pod("better", priority=6)
    for each in (first, other, better):
        world.refuse(each, "fit")
    world.queue.nominate(first, "node-1")
    given_up: list[str] = []
    world.queue.given_up.connect(lambda one: given_up.append(one.name))
    end(world.queue, first)
    assert given_up == (["first"] if woken else [])
    assert world.where(other) == ("backoff" if woken else "unschedulable")
    assert world.where(first) in ("unschedulable", None)
    assert world.where(better) == "unschedulable", "the nomination did not hold it back"


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
