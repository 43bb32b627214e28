"""Gangs whose roles have minimums, and those whose roles come one after another."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.objects.batch import STAGE_GATE, TASK_SPEC, WAITING_ROLES

from .scene import Scene, bound, has, sized, status_of

pytestmark = pytest.mark.promise("S27")

STAGES = {"minMember": 3, "minTaskMember": {"master": 1, "worker": 2}}
ROLES = {"phase": "Inqueue", "minMember": 5, "minTaskMember": {"m": 3, "w": 2}}
FIRST = {"annotations": {WAITING_ROLES: "worker"}}
STAND_BY: dict[str, Any] = {"schedulingGates": [{"name": STAGE_GATE}]}


def members(scene: Scene, role: str, number: int, **more: Any) -> None:
    for _ in range(number):
        there = sum(pod.name.startswith(f"g-{role}-") for pod in scene.members[scene.groups[0].key])
        scene.member("g", f"g-{role}-{there}", annotations={TASK_SPEC: role}, **more)


def staged(cpu: str, **group: Any) -> Scene:
    return sized(cpu).holding(has("g", **group))


def waits(cpu: str) -> Scene:
    """A gang in two stages of which the first is there, and runs."""
    scene = staged(cpu, phase="Running", **STAGES, **FIRST)
    members(scene, "master", 1, node="n0")
    return scene


@pytest.mark.parametrize(
    ("priorities", "order"),
    [
        ((10, 1), ["g-m-0", "g-m-1", "g-m-2", "g-w-0", "g-w-1", "g-m-3", "g-m-4", "g-w-2"]),
        ((1, 1), ["g-m-0", "g-w-0", "g-m-1", "g-w-1", "g-m-2", "g-w-2", "g-m-3", "g-m-4"]),
    ],
)
def test_minimums_of_roles_come_before_what_is_beyond(priorities: tuple[int, int], order: list[str]) -> None:
    scene = staged("8", **ROLES)
    members(scene, "m", 5, priority=priorities[0])
    members(scene, "w", 3, priority=priorities[1])
    session, _ = scene.run()
    assert [name for _, names, _ in scene.cluster.commits for name in names] == order
    assert len(bound(session)) == 8


def test_a_role_of_higher_priority_leaves_another_the_room_for_its_minimum() -> None:
    scene = staged("5", **ROLES)
    members(scene, "m", 5, priority=10)
    members(scene, "w", 3)
    session, _ = scene.run()
    assert sorted(bound(session)) == ["g-m-0", "g-m-1", "g-m-2", "g-w-0", "g-w-1"]


def test_members_that_have_a_node_count_for_the_minimum_of_their_role() -> None:
    scene = staged("6", **{**ROLES, "phase": "Running"})
    members(scene, "m", 3, priority=10, node="n0")
    members(scene, "m", 1, priority=10)
    members(scene, "w", 2)
    session, _ = scene.run()
    assert scene.cluster.commits[0][1] == ["g-w-0", "g-w-1", "g-m-3"][: len(scene.cluster.commits[0][1])]
    assert sorted(bound(session)) == ["g-m-3", "g-w-0", "g-w-1"]


def test_the_first_stage_is_a_gang_by_itself() -> None:
    scene = staged("1", phase="Inqueue", **STAGES, **FIRST)
    members(scene, "master", 1)
    session, result = scene.run()
    assert list(bound(session)) == ["g-master-0"]
    assert [each.type for each in status_of(result, "g").conditions or ()] == ["Scheduled"]


def test_who_runs_alone_until_the_next_stage_is_there_is_neither_unknown_nor_unschedulable() -> None:
    status = status_of(waits("3").run()[1], "g")
    assert status.phase == "Running"
    assert [each.type for each in status.conditions or ()] == ["Scheduled"]


@pytest.mark.parametrize(("cpu", "number", "placed"), [("3", 2, 2), ("2", 2, 0), ("3", 1, 0)])
def test_the_next_stage_is_placed_whole_or_not_at_all_and_the_first_stays_as_it_is(
    cpu: str, number: int, placed: int
) -> None:
    scene = waits(cpu)
    members(scene, "worker", number)
    session, result = scene.run()
    assert len(bound(session)) == placed
    assert status_of(result, "g").phase == "Running"
    conditions = [each.type for each in status_of(result, "g").conditions or ()]
    assert conditions == ["Scheduled" if placed else "Unschedulable"]


def test_a_stage_that_has_run_is_missed() -> None:
    scene = staged("2", phase="Running", **STAGES)
    members(scene, "master", 1, node="n0")
    members(scene, "worker", 2)
    session, result = scene.run()
    assert not bound(session)
    assert status_of(result, "g").phase == "Unknown"


@pytest.mark.parametrize("roles", [{}, {"minTaskMember": {"a": 1, "b": 1}, "minMember": 2}])
def test_those_that_stand_by_leave_the_room_to_who_runs_before_them(roles: dict[str, Any]) -> None:
    scene = staged("3", phase="Running", **roles)
    members(scene, "a", 1, node="n0")
    members(scene, "b", 1, **STAND_BY)
    members(scene, "b", 1, priority=10, **STAND_BY)
    members(scene, "a", 2)
    session, _ = scene.run()
    # Only of the minimum of their role one comes before what is beyond that of another.
    assert sorted(bound(session)) == (["g-a-1", "g-b-1"] if roles else ["g-a-1", "g-a-2"])


@pytest.mark.parametrize("waits", [False, True])
def test_those_that_stand_by_are_given_nothing_while_only_others_of_the_first_stage_have_run(waits: bool) -> None:
    scene = staged("2", phase="Running")
    members(scene, "a", 1, node="n0", phase="Succeeded")
    members(scene, "a", int(waits), cpu="3")
    members(scene, "b", 1, **STAND_BY)
    session, _ = scene.run()
    # Where all have run that are to run first the gate is about to go.
    assert list(bound(session)) == ([] if waits else ["g-b-0"])
