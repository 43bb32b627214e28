"""What a session writes of groups, pods and queues, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.quotas.book import QuotaBook
from agent_scheduler.engine.session.close import Result, close
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.objects.batch import PodGroupCondition, PodGroupStatus
from tests.support.engine import queue_of

from .scene import GATED, Scene, conf, finished, has, runs, sized, status_of, told, waits


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
    scene = sized(1).holding(waits("g", 2))
    _, first = scene.run()
    assert first.groups[0].write and first.pods and all(each.write for each in first.queues)
    again(scene, first)
    _, second = scene.run()
    assert not (second.groups[0].write or second.pods or any(each.write for each in second.queues))


def test_that_another_session_found_the_same_is_not_written() -> None:
    scene = sized(1).holding(waits("g", 2))
    again(scene, scene.run()[1])
    session = scene.session(now="2026-01-01T00:00:09Z")
    session.uid = "another"
    for _ in session.run():
        pass
    (group,) = finished(close(session)).groups
    (condition,) = group.status.conditions or ()
    assert condition.transition_id == "another" and not group.write


def test_a_member_that_ends_is_written_though_the_phase_stays() -> None:
    scene = sized(4).holding(runs("g", "n0", "n0", minMember=1))
    again(scene, scene.run()[1])
    there = scene.members[scene.groups[0].key]
    ended = msgspec.structs.replace(there[1].batch, phase="Failed")
    there[1] = msgspec.structs.replace(there[1], batch=ended)
    (result,) = scene.run()[1].groups
    assert (result.status.phase, result.status.failed, result.write) == ("Running", 1, True)


def test_a_group_that_waits_says_why_each_time() -> None:
    _, result = sized(1).holding(waits("g", 2)).run()
    text = (
        "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable; "
        "Pending: 1 Schedulable, 1 Unschedulable. Origin reason is g-1: "
        "0/1 nodes are unavailable: 1 Insufficient cpu."
    )
    (event,) = result.events
    assert (event.type, event.reason, event.message) == ("Warning", "Unschedulable", text)
    (condition,) = status_of(result, "g").conditions or ()
    assert condition.message.startswith("1/2 tasks in gang unschedulable: ")
    assert (condition.type, condition.status, condition.transition_id) == ("Unschedulable", "True", "this")


PLACES: dict[str, dict[str, Any]] = {
    "R": {"node": "n0"},
    "B": {"node": "n0", "phase": "Pending"},
    "S": {"node": "n0", "phase": "Succeeded"},
    "F": {"node": "n0", "phase": "Failed"},
    # One that leaves its node, and one that was deleted before it had any.
    "L": {"node": "n0", "deleting": True},
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
    group = has("g", *(PLACES[each] for each in members), minMember=minimum, phase=old)
    status = status_of(sized(9).holding(group).run()[1], "g")
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
    more = [{"cpu": "99"}] if minimum == 4 else []
    group = has("g", *(PLACES[each] for each in members), *more, minMember=minimum, phase="Running")
    # Without a backfill who asks for nothing stays pending, and counts.
    _, result = sized(9).holding(group).run(conf(actions="enqueue allocate"))
    found = [each.type for each in status_of(result, "g").conditions or ()]
    assert found == ([condition] if condition else [])


def test_who_others_leave_for_is_nominated_to_their_node_until_its_pod_says_so() -> None:
    old = has("old", {"node": "n1", "deleting": True}, phase="Running")
    scene = sized(1, 1).holding(runs("low", "n0"), old, waits("high", 2, priorityClassName="high"))
    scene.more["priorities"] = {"high": 9}
    how = conf("priority", "predicates", actions="enqueue allocate preempt")
    _, result = scene.run(how)
    assert {each.pod.name: each.nominated for each in result.pods} == {"high-0": "", "high-1": "n0"}
    assert {each.group.key.name: each.preempts for each in result.groups}["high"]
    again(scene, result)
    _, result = scene.run(how)
    assert {each.pod.name: each.nominated for each in result.pods} == {"high-1": "n0"}, (
        "only this was not written"
    )
    there = scene.members[GroupKey("default", "high")]
    there[1] = msgspec.structs.replace(there[1], nominated_node_name="n0")
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
    each = ({"cpu": "2", **(GATED if index < gated else {})} for index in range(members))
    _, result = sized(1).holding(has("g", *each, minMember=2)).run(book=QuotaBook() if asks_book else None)
    (condition,) = status_of(result, "g").conditions or ()
    assert condition.reason == reason
    if reason == "SchedulingGated":
        assert condition.message.startswith(f"{gated}/{members} tasks in gang have scheduling gates: ")


def test_what_runs_in_several_queues_counts_in_each_above_and_what_has_ended_in_none() -> None:
    scene = sized(9)
    tree = {"p": "", "x": "p", "y": "p", "lost": "gone", "loop": "loop"}
    scene.queues += [queue_of(name, parent) for name, parent in tree.items()]
    scene.holding(*(runs(queue, "n0", queue=queue) for queue in ("x", "y", "lost", "loop")))
    scene.member("x", node="n0", phase="Succeeded")
    scene.member("y", node="n0", deleting=True)
    held = {each.queue.name: each.allocated for each in scene.run()[1].queues}
    counts = {"root": 2, "default": 0, "p": 2, "x": 1, "y": 1, "lost": 1, "loop": 1}
    assert held == {
        name: {"cpu": 1000 * count, "memory": 0} | ({"pods": count} if count else {})
        for name, count in counts.items()
    }


def test_a_group_that_runs_again_says_so_once() -> None:
    scene = sized(4).holding(has("g", {"node": "n0"}, phase="Inqueue"))
    _, first = scene.run()
    assert [each.reason for each in first.events] == ["Scheduled"]
    again(scene, first)
    assert not scene.run()[1].events


def test_conditions_of_other_types_stay_and_of_its_own_the_last_one() -> None:
    scene = sized(1).holding(waits("g", 2))
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
    assert not told(sized(4).holding(has("g", GATED)).run()[1])


def test_a_group_that_nobody_looked_at_has_no_conditions() -> None:
    _, result = sized(4).holding(has("g")).run()
    assert status_of(result, "g") == PodGroupStatus(phase="Inqueue")
