"""What a session writes of groups, pods and queues, what it leaves alone, and which jobs stand for the next one."""

from __future__ import annotations

import gc
from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.queues.book import QuotaBook
from agent_scheduler.engine.session.close import SessionResult, close
from agent_scheduler.engine.session.conf import PluginOption, SessionConf
from agent_scheduler.engine.session.model import JobInfo, TaskInfo
from agent_scheduler.engine.session.session import Session
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE, TASK_SPEC, PodGroupCondition, PodGroupStatus
from tests.support.engine import queue_of

from .scene import GATED, Part, Scene, bound, conf, finished, has, runs, sized, status_of, told, waits


def again(scene: Scene, result: SessionResult) -> None:
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
    # One that asks for nothing, and one that fits nowhere.
    "E": {"cpu": ""},
    "X": {"cpu": "99"},
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
    ("members", "minimum", "phase"),
    [("SX", 1, "Running"), ("SP", 1, "Running"), ("X", 0, "Inqueue"), ("SF", 1, "Completed")],
)
def test_a_group_is_completed_when_all_have_ended_and_in_volcanos_sessions_all_that_were_placed(
    members: str, minimum: int, phase: str
) -> None:
    group = has("g", *(PLACES[each] for each in members), minMember=minimum, phase="Inqueue")
    scene = sized(9).holding(group)
    assert status_of(scene.run(book=QuotaBook())[1], "g").phase == phase
    assert status_of(scene.run()[1], "g").phase == "Completed"


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
    assert {each.pod.name: each.nominated for each in result.pods} == {"high-1": "n0"}, "only this was not written"
    there = scene.members[GroupKey("default", "high")]
    there[1] = msgspec.structs.replace(there[1], nominated_node_name="n0")
    assert not scene.run(how)[1].pods


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
        name: {"cpu": 1000 * count, "memory": 0} | ({"pods": count} if count else {}) for name, count in counts.items()
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


FALSE_AND_TRUE = (("Scheduled", "False"), ("Unschedulable", "True"))


def test_conditions_are_of_what_is_waited_for_and_end_with_it() -> None:
    def said(group: str) -> list[tuple[str, str, str]]:
        conditions = status_of(result, group).conditions or ()
        return [(each.type, each.status, each.reason) for each in conditions]

    scene = sized(9).holding(has("few", {}, minMember=2), has("lost", {}, GATED, queue="gone"))
    roles = [{"annotations": {TASK_SPEC: role}, **PLACES[place]} for role, place in ("aR", "aR", "bX")]
    scene.holding(has("short", *roles, minMember=2, minTaskMember={"a": 1, "b": 1}, phase="Running"))
    _, result = scene.run(book=QuotaBook())
    assert said("few") == [("Unschedulable", "True", "NotEnoughTasks")]
    assert said("lost") == [("Unschedulable", "True", "QueueFull")]
    assert said("short") == [(each, now, "NotEnoughResources") for each, now in FALSE_AND_TRUE]
    assert [each[0] for each in told(result).values()] == ["NotEnoughPods", "Unschedulable", "QueueFull"]
    again(scene, result)
    scene.member("few")
    _, result = scene.run(book=QuotaBook())
    assert [each[:2] for each in said("few")] == [("Unschedulable", "False"), ("Scheduled", "True")]
    again(scene, result)
    orphan = scene.members[GroupKey("default", "few")].pop()
    scene.more["lost"] = {GroupKey("default", "none"): ("it is not there", [orphan])}
    _, result = scene.run(book=QuotaBook())
    assert told(result)["few-1"] == ("PodGroupNotFound", "it is not there")
    assert said("few")[1] == ("Scheduled", "False", "NotEnoughTasks") and said("few")[0][1] == "True"


def test_a_gated_pod_is_told_nothing() -> None:
    assert not told(sized(4).holding(has("g", GATED)).run()[1])


def test_a_group_that_nobody_looked_at_has_no_conditions() -> None:
    _, result = sized(4).holding(has("g")).run()
    assert status_of(result, "g") == PodGroupStatus(phase="Inqueue")


SHARES = conf("priority", "gang", "drf", "predicates", "proportion", "nodeorder")


def four_nodes(*parts: Part) -> Scene:
    """None of which has room for a pod of 3 cpus, though there are 8."""
    return sized(2, 2, 2, 2).holding(*parts)


def rested(scene: Scene, how: SessionConf = SHARES) -> SessionResult:
    """What the session after one says of which all has been written."""
    for _ in range(2):
        _, result = scene.run(how, book=QuotaBook())
        again(scene, result)
    return result


def names(result: SessionResult) -> set[str]:
    return {key.name for key in result.settled}


def test_a_gang_that_nodes_refused_and_one_that_runs_are_settled_once_all_is_written() -> None:
    scene = four_nodes(waits("waits", 2, cpu="3"), has("runs", {"node": "n0"}))
    _, first = scene.run(SHARES, book=QuotaBook())
    assert not names(first), "their statuses are to be written"
    again(scene, first)
    _, second = scene.run(SHARES, book=QuotaBook())
    assert names(second) == {"waits", "runs"}


def test_a_settled_job_is_not_looked_at_and_counts_as_before() -> None:
    scene = four_nodes(runs("runs", "n0"), waits("waits", cpu="3"))
    before = rested(scene)
    scene.more["settled"] = before.settled
    scene.gang("new", 3)
    session, result = scene.run(SHARES, book=QuotaBook())
    assert [job.name for job in session.fresh] == ["new"]
    assert set(bound(session)) == {"new-0", "new-1", "new-2"}
    assert session.queue_demands["default"].allocated["cpu"] == 1000
    assert session.shares["default/runs"] == 0.125
    assert {"waits", "runs"} <= names(result)
    told = {each.group.key.name: each.waits_for for each in result.groups}
    assert told == {"waits": "nodes", "runs": "", "new": ""}
    assert not any(event.group.name == "waits" for event in result.events)


def test_what_a_settled_job_asks_for_counts_in_what_its_queue_deserves() -> None:
    def gauges(*, settled: bool) -> Any:
        scene = four_nodes(waits("waits", 2, cpu="3"))
        before = rested(scene)
        assert names(before)
        scene.more["settled"] = before.settled if settled else {}
        return scene.run(SHARES, book=QuotaBook())[1].gauges

    assert gauges(settled=True) == gauges(settled=False)


@pytest.mark.parametrize(
    "how",
    [
        conf("priority", "gang", "predicates", actions="enqueue allocate preempt"),
        conf("priority", "gang", "predicates", actions="enqueue allocate reclaim backfill"),
        conf("gang", "predicates", PluginOption("sla", {"sla-waiting-time": "1h"})),
    ],
    ids=["preempt", "reclaim", "sla"],
)
def test_nobody_is_settled_where_room_is_made_or_claims_come_with_time(how: SessionConf) -> None:
    assert not names(rested(four_nodes(waits("waits", 2, cpu="3")), how))


def test_who_was_refused_beside_claims_of_others_is_not_settled() -> None:
    """The claims are gone with the session, and no event tells of that."""
    leaves = has("leaves", {"cpu": "2", "node": "n0", "deleting": True}, phase="Running")
    scene = sized(2, 1, 1).holding(leaves, waits("claims", cpu="2"), waits("waits", cpu="2"))
    session, result = scene.run(SHARES, book=QuotaBook())
    assert session.claims
    again(scene, result)
    assert "waits" not in names(scene.run(SHARES, book=QuotaBook())[1])


def test_who_is_not_let_in_lacks_members_has_a_gate_or_asks_for_nothing_is_not_settled() -> None:
    scene = sized(2).holding(
        waits("out", 3, minResources={"cpu": "8"}),
        has("few", {}, minMember=2),
        has("gated", {"schedulingGates": [{"name": QUEUE_ALLOCATION_GATE}]}),
        has("empty", minResources={"cpu": "8"}),
        has("free", {"cpu": ""}, {"cpu": "", "nodeSelector": {"not": "there"}}),
    )
    how = conf("priority", "gang", "predicates", "proportion", "overcommit")
    assert not names(rested(scene, how))


def test_who_has_a_member_behind_the_queues_gate_is_not_settled_whatever_the_others_wait_for() -> None:
    scene = four_nodes()
    scene.group("half")
    scene.member("half", cpu="3")
    scene.member("half", cpu="3", schedulingGates=[{"name": QUEUE_ALLOCATION_GATE}])
    scene.gang("waits", 2, cpu="3")
    assert names(rested(scene)) == {"waits"}


def test_a_job_of_which_a_queue_held_a_task_back_is_not_settled() -> None:
    """Room in the queue would help it, of which nodes do not tell."""
    scene = four_nodes(has("mixed", {"cpu": "9"}, {"cpu": "3"}))
    session: Session | None = None
    for _ in range(2):
        session, result = scene.run(SHARES, book=QuotaBook())
        again(scene, result)
    assert session is not None and session.held_back and not names(result)


def test_a_settled_job_that_its_queue_holds_back_from_now_on_says_so() -> None:
    scene = four_nodes(waits("waits", 2, cpu="3", queue="q"))
    scene.queues.append(queue_of("q", "root", capability=8000))
    book = scene.book()
    for _ in range(2):
        _, result = scene.run(SHARES, book=book)
        again(scene, result)
    assert names(result) == {"waits"}
    scene.more["settled"] = result.settled
    book.set_queue(queue_of("q", "root", capability=2000))
    _, result = scene.run(SHARES, book=book)
    assert {reason for reason, _ in told(result).values()} == {"QueueFull"} and not names(result)


def test_a_session_that_is_over_goes_without_a_collection() -> None:
    scene = four_nodes(waits("waits", cpu="3"))
    settled = rested(scene).settled
    scene.more["settled"] = settled
    scene.gang("other", 1, cpu="3", subGroupPolicy=[{"name": "s", "subGroupSize": 1, "minSubGroups": 1}])
    gc.collect()
    gc.disable()
    try:
        # The jobs that stand, the one that is new, and of the session before it the one that was new there.
        session, _ = scene.run(SHARES, book=QuotaBook())
        later, _ = scene.run(SHARES, book=QuotaBook())
        assert left(Session) == 2 and left(TaskInfo) == left(JobInfo) == 3
        for _ in session.retire(later):
            pass
        del session
        assert left(Session) == 1 and left(TaskInfo) == left(JobInfo) == 2
    finally:
        gc.enable()
    assert set(later.jobs) == {"default/waits", "default/other"} and later.jobs["default/waits"].tasks


def left(kind: type) -> int:
    return sum(type(each) is kind for each in gc.get_objects())
