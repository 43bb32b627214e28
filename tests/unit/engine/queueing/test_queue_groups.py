"""Pods that only make sense together: case 65, as far as the queue itself goes."""

from __future__ import annotations

from typing import Any

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.hints import QueueingHint

from .queue_world import QUEUE, SKIP, Gate, Pod, World, on, pod


class Gang:
    """A gang plugin of the shape that the queue is made for: a gate until all members are there, a hint that
    answers for the whole gang. `spec` is (gang, how many it takes)."""

    def __init__(self) -> None:
        self.members: dict[str, set[str]] = {}
        self.fits: set[str] = set()

    def observe(self, member: Pod) -> None:
        self.members.setdefault(member.spec[0], set()).add(member.uid)

    def incomplete(self, member: Pod) -> bool:
        return member.spec is not None and len(self.members[member.spec[0]]) < member.spec[1]

    def completed(self, waiting: Pod, old: Any, new: Any) -> QueueingHint:
        return QUEUE if new.spec is not None and new.spec[0] == waiting.spec[0] else SKIP

    def room(self, waiting: Pod, old: Any, new: Any) -> QueueingHint:
        """The best answer of any member is the answer of all."""
        return QUEUE if self.members[waiting.spec[0]] & self.fits else SKIP


def gang_world() -> tuple[World, Gang]:
    gang = Gang()
    world = World(
        {"Gang": [on(ev.UNSCHEDULED_POD_ADD, gang.completed), on(ev.NODE_ADD, gang.room)]},
        gates=[Gate("Gang", gang.incomplete)],
    )
    return world, gang


def arrives(world: World, gang: Gang, member: Pod) -> None:
    world.clock.step(1)
    gang.observe(member)
    world.queue.add(member)
    world.queue.move_all(ev.UNSCHEDULED_POD_ADD, None, member)


def test_case_65_members_of_an_incomplete_group_wait_and_the_last_one_lets_all_in():
    """There is no group entity in this queue: a gate and hints give a group's pods one fate, see the decision
    record. The pods stay entries of their own."""
    world, gang = gang_world()
    members = [pod(f"member-{index}", spec=("gang", 3)) for index in range(3)]
    stranger = pod("stranger", spec=("other-gang", 2))
    arrives(world, gang, stranger)
    for member in members[:2]:
        arrives(world, gang, member)
    assert world.queue.pending() == (0, 0, 0, 3, 0)
    assert world.ready == 0
    arrives(world, gang, members[2])
    assert [world.where(member) for member in members] == ["active"] * 3
    assert world.where(stranger) == "gated"
    assert world.pop_names() == ["member-0", "member-1", "member-2"]


def test_case_65_an_event_that_helps_one_member_wakes_all_in_one_move():
    world, gang = gang_world()
    members = [pod(f"member-{index}", spec=("gang", 3)) for index in range(3)]
    for member in members:
        gang.observe(member)
    for member in members:
        world.refuse(member, "Gang")
    world.clock.step(60)
    assert world.queue.move_all(ev.NODE_ADD, None, object()) == 0
    gang.fits.add(members[1].uid)
    ready = world.ready
    assert world.queue.move_all(ev.NODE_ADD, None, object()) == 3
    assert world.ready == ready + 1
    assert [world.where(member) for member in members] == ["active"] * 3
