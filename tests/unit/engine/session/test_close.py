"""What a session writes of groups, pods and queues, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.quotas.book import QuotaBook
from agent_scheduler.engine.quotas.queues import QueueInfo
from agent_scheduler.engine.session.close import Result, close
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.objects.batch import PodGroupCondition, PodGroupStatus
from tests.support.engine import node

from .scene import Scene, conf, finished, status_of, told


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


PLACES: dict[str, dict[str, Any]] = {
    "R": {"node": "a"},
    "B": {"node": "a", "phase": "Pending"},
    "S": {"node": "a", "phase": "Succeeded"},
    "F": {"node": "a", "phase": "Failed"},
    # One that leaves its node, and one that was deleted before it had any.
    "L": {"node": "a", "deleting": True},
    "G": {"deleting": True},
    "P": {},
    # One that asks for nothing.
    "E": {"cpu": ""},
}


@pytest.mark.promise("S31")
@pytest.mark.parametrize(
    ("members", "minimum", "old", "phase"),
    [
        ("RR", 2, "Running", "Running"),
        ("BB", 2, "Inqueue", "Running"),
        ("RS", 2, "Running", "Running"),
        ("RF", 2, "Running", "Unknown"),
        ("RF", 1, "Running", "Running"),
        ("SF", 2, "Running", "Completed"),
        ("SSF", 2, "Running", "Completed"),
        ("SL", 2, "Running", "Running"),
        ("RL", 2, "Running", "Running"),
        ("LL", 2, "Running", "Running"),
        ("S", 2, "Running", "Pending"),
        ("S", 2, "Inqueue", "Inqueue"),
        ("B", 2, "Running", "Pending"),
        ("R", 2, "Running", "Unknown"),
        ("RG", 2, "Running", "Unknown"),
        ("RRG", 2, "Running", "Running"),
        # What is on its way to a node does not run yet.
        ("RP", 2, "Running", "Pending"),
        ("RP", 2, "Inqueue", "Inqueue"),
        ("RRP", 2, "Running", "Running"),
    ],
)
def test_a_phase_follows_the_members(members: str, minimum: int, old: str, phase: str) -> None:
    scene = Scene(node("a", cpu="9"))
    scene.group("g", minMember=minimum, phase=old)
    for each in members:
        scene.member("g", **PLACES[each])
    _, result = scene.run()
    status = status_of(result, "g")
    assert status.phase == phase
    assert (status.running, status.succeeded, status.failed) == tuple(map(members.count, "RSF"))


@pytest.mark.parametrize(
    ("members", "minimum", "condition"),
    [
        ("RL", 2, None),
        ("RLE", 3, None),
        ("RLE", 4, "Unschedulable"),
        ("RG", 2, "Unschedulable"),
        ("RLR", 2, "Scheduled"),
    ],
)
def test_a_gang_that_lacks_no_more_than_those_who_leave_is_not_unschedulable(
    members: str, minimum: int, condition: str | None
) -> None:
    scene = Scene(node("a", cpu="9"))
    scene.group("g", minMember=minimum, phase="Running")
    for each in members:
        scene.member("g", **PLACES[each])
    if minimum == 4:
        scene.member("g", cpu="99")
    # Without a backfill who asks for nothing stays pending, and counts.
    _, result = scene.run(conf(actions="enqueue allocate"))
    assert [each.type for each in status_of(result, "g").conditions or ()] == (
        [condition] if condition else []
    )


def test_who_others_leave_for_is_nominated_to_their_node_until_its_pod_says_so() -> None:
    scene = Scene(node("a", cpu="1"), node("b", cpu="1"))
    scene.more["priorities"] = {"high": 9}
    scene.running("low", "a")
    scene.group("old", phase="Running")
    scene.member("old", node="b", deleting=True)
    scene.gang("high", 2, priorityClassName="high")
    how = conf("priority", "predicates", actions="enqueue allocate preempt")
    _, result = scene.run(how)
    assert {each.pod.name: each.nominated for each in result.pods} == {"high-0": "", "high-1": "a"}
    assert {each.group.key.name: each.preempts for each in result.groups}["high"]
    again(scene, result)
    _, result = scene.run(how)
    assert {each.pod.name: each.nominated for each in result.pods} == {"high-1": "a"}, (
        "only this was not written"
    )
    there = scene.members[GroupKey("default", "high")]
    there[1] = msgspec.structs.replace(there[1], nominated_node_name="a")
    assert not scene.run(how)[1].pods


@pytest.mark.parametrize(
    ("members", "gated", "asks_book", "reason"),
    [
        (2, 1, True, "SchedulingGated"),
        (2, 1, False, "NotEnoughResources"),
        (3, 1, True, "NotEnoughResources"),
        (3, 2, True, "SchedulingGated"),
    ],
)
def test_a_gang_that_lacks_its_minimum_for_gates_alone_says_so_where_queues_are_asked(
    members: int, gated: int, asks_book: bool, reason: str
) -> None:
    scene = Scene(node("a", cpu="1"))
    scene.group("g", minMember=2)
    for index in range(members):
        scene.member("g", cpu="2", schedulingGates=[{"name": "example.com/wait"}] if index < gated else [])
    _, result = scene.run(book=QuotaBook() if asks_book else None)
    (condition,) = status_of(result, "g").conditions or ()
    assert condition.reason == reason
    if reason == "SchedulingGated":
        assert condition.message.startswith(f"{gated}/{members} tasks in gang have scheduling gates: ")


def test_what_runs_in_several_queues_counts_in_each_above_and_what_has_ended_in_none() -> None:
    scene = Scene(node("a", cpu="9"))
    scene.queues += [QueueInfo(name="p"), *(QueueInfo(name=name, parent="p") for name in ("x", "y"))]
    scene.queues += [QueueInfo(name="lost", parent="gone"), QueueInfo(name="loop", parent="loop")]
    for queue in ("x", "y", "lost", "loop"):
        scene.running(queue, "a", queue=queue)
    scene.member("x", node="a", phase="Succeeded")
    scene.member("y", node="a", deleting=True)
    _, result = scene.run()
    held = {each.queue.name: each.allocated["cpu"] for each in result.queues}
    assert held == {"root": 2000, "default": 0, "p": 2000, "x": 1000, "y": 1000, "lost": 1000, "loop": 1000}


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


def test_conditions_of_other_types_stay_and_of_its_own_the_last_one() -> None:
    scene = Scene(node("a", cpu="1"))
    scene.gang("g", 2)
    others = tuple(PodGroupCondition(type=kind, status="True") for kind in ("Mine", "Unschedulable", "Yours"))
    status = PodGroupStatus(phase="Inqueue", conditions=others)
    scene.groups[0] = msgspec.structs.replace(scene.groups[0], status=status)
    conditions = status_of(scene.run()[1], "g").conditions or ()
    assert [(each.type, each.reason) for each in conditions] == [
        ("Mine", ""),
        ("Unschedulable", "NotEnoughResources"),
        ("Yours", ""),
    ]


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
