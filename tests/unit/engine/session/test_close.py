"""What a session writes of groups, pods and queues, and what it leaves alone."""

from __future__ import annotations

import msgspec
import pytest

from agent_scheduler.engine.session.close import Result, close
from agent_scheduler.objects.batch import PodGroupStatus
from tests.unit.engine.world import node

from .scene import Scene, finished, status_of, told


def again(scene: Scene, result: Result) -> None:
    """What was written is what the next session finds."""
    for index, group in enumerate(scene.groups):
        scene.groups[index] = msgspec.structs.replace(group, status=status_of(result, group.key.name))
    for each in result.pods:
        there = scene.members[each.pod.batch.group]  # type: ignore[union-attr,index]
        there[there.index(each.pod)] = msgspec.structs.replace(
            each.pod, condition=("False", each.reason, each.message, 0)
        )
    scene.more["held"] = {each.queue.name: each.allocated for each in result.queues}


def test_nothing_is_written_twice() -> None:
    scene = Scene(node("a", cpu="1"))
    scene.gang("g", 2)
    _, first = scene.run()
    assert first.groups[0].write
    assert first.pods
    assert all(each.write for each in first.queues)
    again(scene, first)
    _, second = scene.run()
    assert not second.groups[0].write
    assert not second.pods
    assert not any(each.write for each in second.queues)


def test_that_another_session_found_the_same_is_not_written() -> None:
    scene = Scene(node("a", cpu="1"))
    scene.gang("g", 2)
    _, first = scene.run()
    again(scene, first)
    session = scene.session(now="2026-01-01T00:00:09Z")
    session.uid = "another"
    for _ in session.run():
        pass
    (group,) = finished(close(session)).groups
    (condition,) = group.status.conditions or ()
    assert condition.transition_id == "another" and not group.write


def test_a_member_that_ends_is_written_though_the_phase_stays() -> None:
    scene = Scene(node("a"))
    group = scene.group("g", minMember=1, phase="Running")
    for phase in ("Running", "Running"):
        scene.member("g", node="a", phase=phase)
    again(scene, scene.run()[1])
    there = scene.members[group.key]
    there[1] = msgspec.structs.replace(
        there[1], batch=msgspec.structs.replace(there[1].batch, phase="Failed")
    )
    (result,) = scene.run()[1].groups
    assert (result.status.phase, result.status.failed, result.write) == ("Running", 1, True)


def test_a_group_that_waits_says_why_each_time() -> None:
    scene = Scene(node("a", cpu="1"))
    scene.gang("g", 2)
    _, result = scene.run()
    text = (
        "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable; "
        "Pending: 1 Schedulable, 1 Unschedulable. Origin reason is g-1: "
        "0/1 nodes are unavailable: 1 Insufficient cpu."
    )
    assert [(each.type, each.reason, each.message) for each in result.events] == [
        ("Warning", "Unschedulable", text)
    ]
    (condition,) = status_of(result, "g").conditions or ()
    assert condition.message.startswith("1/2 tasks in gang unschedulable: ")
    assert (condition.type, condition.status, condition.transition_id) == ("Unschedulable", "True", "this")


@pytest.mark.parametrize(
    ("phases", "minimum", "phase"),
    [
        (["Running", "Running"], 2, "Running"),
        (["Running", "Succeeded"], 2, "Running"),
        (["Succeeded", "Failed"], 2, "Completed"),
        (["Succeeded"], 2, "Pending"),
        (["Running"], 2, "Unknown"),
    ],
)
def test_a_phase_follows_the_members(phases: list[str], minimum: int, phase: str) -> None:
    scene = Scene(node("a"))
    scene.group("g", minMember=minimum, phase="Running")
    for each in phases:
        scene.member("g", node="a", phase=each)
    _, result = scene.run()
    status = status_of(result, "g")
    assert status.phase == phase
    assert (status.running, status.succeeded, status.failed) == tuple(
        phases.count(each) for each in ("Running", "Succeeded", "Failed")
    )


def test_a_group_that_is_let_in_stays_so_while_it_waits() -> None:
    scene = Scene(node("a", cpu="1"))
    scene.gang("g", 2, phase="Inqueue")
    _, result = scene.run()
    assert status_of(result, "g").phase == "Inqueue"


def test_a_group_that_runs_again_says_so_once() -> None:
    scene = Scene(node("a"))
    scene.group("g", phase="Inqueue")
    scene.member("g", node="a")
    _, first = scene.run()
    assert [each.reason for each in first.events] == ["Scheduled"]
    again(scene, first)
    _, second = scene.run()
    assert not second.events


def test_a_queue_holds_what_is_in_it_and_below_it() -> None:
    scene = Scene(node("a"))
    scene.group("g", phase="Running")
    scene.member("g", cpu="2", node="a")
    _, result = scene.run()
    assert {each.queue.name: each.allocated for each in result.queues} == {
        "root": {"cpu": 2000, "memory": 0, "pods": 1},
        "default": {"cpu": 2000, "memory": 0, "pods": 1},
    }


def test_a_gated_pod_is_told_nothing() -> None:
    scene = Scene(node("a"))
    scene.group("g")
    scene.member("g", schedulingGates=[{"name": "example.com/wait"}])
    _, result = scene.run()
    assert not told(result)


def test_a_group_that_nobody_looked_at_has_no_conditions() -> None:
    scene = Scene(node("a"))
    scene.group("g")
    _, result = scene.run()
    assert status_of(result, "g") == PodGroupStatus(phase="Inqueue")
