"""Which pods are evicted for a job of the same queue, or for another task of the same job, and when none is."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.quotas.queues import QueueInfo
from agent_scheduler.engine.session.model import TaskStatus
from agent_scheduler.objects.batch import PREEMPTABLE, QUEUE_ALLOCATION_GATE
from tests.support.engine import node
from tests.unit.engine.session.scene import Scene, bound, claimed, conf, evicted

pytestmark = pytest.mark.promise("S30")

ACTIONS = "enqueue allocate preempt"
GANGS = conf("priority", "gang", "predicates", "nodeorder", actions=ACTIONS)
#: Under these a gang may be evicted as a whole, and tasks of one job for one another.
NO_GANGS = conf("priority", "predicates", "nodeorder", actions=ACTIONS)
LOW: dict[str, Any] = {"priorityClassName": "low"}
HIGH: dict[str, Any] = {"priorityClassName": "high"}
GATE = [{"name": "example.com/wait"}]


def scene(*cpus: int) -> Scene:
    """Nodes `n0`, `n1`... with these amounts."""
    made = Scene(*(node(f"n{index}", cpu=str(cpu)) for index, cpu in enumerate(cpus)))
    made.more["priorities"] = {"low": 1, "middle": 2, "high": 3}
    return made


@pytest.mark.parametrize("number", [1, 2, 3])
def test_as_many_are_evicted_as_a_job_needs_the_last_first(number: int) -> None:
    made = scene(4)
    made.running("low", *["n0"] * 4, **LOW)
    made.gang("high", number, **HIGH)
    session, result = made.run(GANGS)
    assert evicted(session) == ["low-3", "low-2", "low-1"][:number]
    assert claimed(session) == {f"high-{index}": "n0" for index in range(number)}
    assert session.preemptions == number
    assert made.cluster.evictions == [(name, "preempt") for name in evicted(session)]
    assert [each.preempts for each in result.groups] == [False, True]


def test_no_pod_is_evicted_for_a_gang_that_would_not_have_its_minimum() -> None:
    made = scene(3)
    made.running("low", *["n0"] * 3, **LOW)
    made.gang("high", 3, **HIGH)
    session, _ = made.run(GANGS)
    assert evicted(session) == []
    assert claimed(session) == {}
    assert session.jobs["default/low"].ready == 3


def test_after_a_gang_that_no_pod_can_be_evicted_for_the_next_one_has_its_turn() -> None:
    made = scene(3)
    made.running("low", *["n0"] * 3, **LOW)
    made.gang("high", 3, **HIGH)
    made.gang("middle", 2, priorityClassName="middle")
    session, _ = made.run(GANGS)
    assert evicted(session) == ["low-2", "low-1"]
    assert claimed(session) == {"middle-0": "n0", "middle-1": "n0"}


def test_a_gang_of_which_some_run_has_others_evicted_for_what_it_lacks() -> None:
    made = scene(5)
    made.running("low", *["n0"] * 3, **LOW)
    made.group("high", minMember=3, phase="Running", **HIGH)
    for place in ("n0", "n0", "", "", ""):
        made.member("high", node=place)
    session, _ = made.run(GANGS)
    assert evicted(session) == ["low-2"], "with a third it has its minimum"


@pytest.mark.promise("GATE-6", "S30")
@pytest.mark.parametrize("gates", [GATE, [{"name": QUEUE_ALLOCATION_GATE}]])
def test_no_pod_is_evicted_for_a_pod_behind_a_gate(gates: list[dict[str, str]]) -> None:
    made = scene(2)
    made.running("low", "n0", "n0", **LOW)
    made.group("high", **HIGH)
    made.member("high", schedulingGates=gates)
    assert evicted(made.run(GANGS)[0]) == []


def test_of_a_gang_with_a_gated_member_the_others_have_pods_evicted() -> None:
    made = scene(3)
    made.running("low", *["n0"] * 3, **LOW)
    made.group("high", **HIGH)
    made.member("high", schedulingGates=GATE, priority=9)
    made.member("high")
    session, _ = made.run(GANGS)
    assert evicted(session) == ["low-2"]
    assert claimed(session) == {"high-1": "n0"}


def test_no_pod_is_evicted_for_a_gang_whose_minimum_needs_a_gated_member() -> None:
    made = scene(3)
    made.running("low", *["n0"] * 3, **LOW)
    made.group("high", minMember=2, **HIGH)
    made.member("high", schedulingGates=GATE)
    made.member("high")
    assert evicted(made.run(GANGS)[0]) == []


@pytest.mark.parametrize(
    ("victim", "preemptor"),
    [
        ({"annotations": {PREEMPTABLE: "false"}}, {}),
        ({"labels": {PREEMPTABLE: "false"}}, {}),
        ({"phase": "Succeeded"}, {}),
        ({"deleting": True}, {}),
        ({}, {"preemptionPolicy": "Never"}),
        ({}, {"cpu": ""}),
        ({}, {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "example.com/x": "1"}}}]}),
        ({}, {"nodeSelector": {"not": "there"}}),
    ],
)
def test_a_pod_stays_that_may_not_go_or_is_of_no_use(victim: Any, preemptor: Any) -> None:
    made = scene(2)
    made.group("low", minMember=0, phase="Running", **LOW)
    for _ in range(2):
        made.member("low", node="n0", **victim)
    made.group("high", **HIGH)
    made.member("high", **preemptor)
    assert evicted(made.run(GANGS)[0]) == []


@pytest.mark.parametrize(
    ("spec", "phase", "expected"),
    [
        ({"priorityClassName": "high"}, "Running", []),
        ({"queue": "other"}, "Running", []),
        ({}, "Running", ["low-1"]),
        ({}, "Pending", ["low-1"]),
    ],
)
def test_only_jobs_of_lower_priority_in_the_same_queue_lose_pods_those_that_start_too(
    spec: dict[str, Any], phase: str, expected: list[str]
) -> None:
    made = scene(2)
    made.queues.append(QueueInfo(name="other", parent="root"))
    made.group("low", phase="Running", **{**LOW, **spec})
    for _ in range(2):
        made.member("low", node="n0", phase=phase)
    made.gang("high", 1, **HIGH)
    assert evicted(made.run(GANGS)[0]) == expected


def test_jobs_of_several_queues_each_have_pods_of_their_own_evicted() -> None:
    made = scene(6)
    for queue in ("a", "b"):
        made.queues.append(QueueInfo(name=queue, parent="root"))
        made.running(f"low-{queue}", *["n0"] * 3, queue=queue, **LOW)
    made.gang("high-a", 1, queue="a", **HIGH)
    made.gang("high-b", 2, queue="b", **HIGH)
    session, _ = made.run(GANGS)
    assert evicted(session) == ["low-a-2", "low-b-2", "low-b-1"]


def test_of_two_jobs_the_later_one_loses_pods_and_the_more_important_one_is_helped_first() -> None:
    made = scene(4)
    made.running("old", "n0", "n0", **LOW)
    made.running("new", "n0", "n0", **LOW)
    made.gang("middle", 1, priorityClassName="middle")
    made.gang("high", 1, **HIGH)
    session, _ = made.run(GANGS)
    assert evicted(session) == ["new-1", "old-1"]
    assert session.evicted[0][0].row == 0
    assert set(claimed(session)) == {"high-0", "middle-0"}


def test_pods_leave_the_node_where_enough_may_go() -> None:
    made = scene(2, 2)
    made.running("whole", "n0", "n0", minMember=2, **LOW)
    made.running("low", "n1", "n1", **LOW)
    made.gang("high", 1, **HIGH)
    session, _ = made.run(GANGS)
    assert evicted(session) == ["low-1"]
    assert claimed(session) == {"high-0": "n1"}


@pytest.mark.parametrize("liked", ["n0", "n1", "n2"])
def test_pods_leave_the_node_that_the_plugins_like_most(liked: str) -> None:
    made = scene(1, 1, 1)
    made.group("low", minMember=0, phase="Running", **LOW)
    for name in ("n0", "n1", "n2"):
        made.member("low", name, node=name)
    wish = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [liked]}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 9, "preference": wish}]}
    made.group("high", **HIGH)
    made.member("high", affinity={"nodeAffinity": preferred})
    assert evicted(made.run(GANGS)[0]) == [liked]


def test_a_pod_that_asks_for_nothing_makes_only_such_pods_leave() -> None:
    made = Scene(node("n0", pods="2"))
    made.more["priorities"] = {"low": 1, "high": 3}
    made.group("low", minMember=0, phase="Running", **LOW)
    made.member("low", "free", cpu="", node="n0")
    made.member("low", "paid", node="n0")
    made.gang("high", 1, cpu="", **HIGH)
    session, _ = made.run(GANGS)
    assert evicted(session) == ["free"]


def test_a_job_that_was_not_let_in_or_lacks_members_has_no_pod_evicted() -> None:
    made = scene(2)
    made.running("low", "n0", "n0", **LOW)
    made.gang("waits", 1, minResources={"cpu": "9"}, **HIGH)
    made.gang("few", 1, minMember=2, **HIGH)
    overcommit = conf("priority", "gang", "overcommit", "predicates", "nodeorder", actions=ACTIONS)
    assert evicted(made.run(overcommit)[0]) == []


def test_a_full_queue_is_room_that_is_missing_too() -> None:
    made = scene(9)
    made.queues.append(QueueInfo(name="q", parent="root", capability={"cpu": 3000}))
    made.running("low", *["n0"] * 3, queue="q", **LOW)
    made.gang("high", 2, queue="q", **HIGH)
    how = conf("priority", "gang", "capacity", "predicates", "nodeorder", actions=ACTIONS)
    session, _ = made.run(how)
    assert evicted(session) == ["low-2", "low-1"]


# ---- within a job


def test_tasks_have_those_of_lower_priority_in_their_job_evicted_one_each() -> None:
    made = scene(3)
    made.group("g", phase="Running")
    for place, priority in (("n0", 1), ("n0", 1), ("n0", 5), ("", 4), ("", 5), ("", 1)):
        made.member("g", node=place, priority=priority)
    session, _ = made.run(NO_GANGS)
    assert evicted(session) == ["g-1", "g-0"]
    assert claimed(session) == {"g-3": "n0", "g-4": "n0"}


@pytest.mark.parametrize("spec", [{"schedulingGates": GATE}, {"preemptionPolicy": "Never"}, {"priority": 1}])
def test_within_a_job_no_pod_is_evicted_for_a_task_that_cannot_run_or_comes_no_earlier(
    spec: dict[str, Any],
) -> None:
    made = scene(1)
    made.group("g", phase="Running")
    made.member("g", node="n0", priority=1)
    made.member("g", **{"priority": 9, **spec})
    assert evicted(made.run(NO_GANGS)[0]) == []


def test_a_gang_that_has_its_minimum_has_none_of_its_own_pods_evicted() -> None:
    made = scene(2)
    made.group("g", phase="Running")
    for place, priority in (("n0", 1), ("n0", 1), ("", 9)):
        made.member("g", node=place, priority=priority)
    assert evicted(made.run(GANGS)[0]) == []


def test_an_eviction_that_is_refused_gives_no_claim_to_a_later_task() -> None:
    made = scene(2)
    made.cluster.refused = {"low-1"}
    made.running("low", "n0", "n0", **LOW)
    made.gang("high", 1, **HIGH)
    session, _ = made.run(GANGS)
    assert made.cluster.evictions == [("low-1", "preempt")]
    assert evicted(session) == []
    assert session.jobs["default/low"].count(TaskStatus.RUNNING) == 2


# ---- gangs that are evicted whole


def test_a_gang_goes_whole_wherever_its_pods_are_or_not_at_all() -> None:
    made = scene(1, 4)
    made.running("low", "n0", "n1", "n1", minMember=3, **LOW)
    made.running("rest", "n1", "n1", priorityClassName="high", minMember=2)
    made.gang("high", 1, **HIGH)
    session, _ = made.run(NO_GANGS)
    assert sorted(evicted(session)) == ["low-0", "low-1", "low-2"]


@pytest.mark.parametrize("needs", [1, 2, 3, 4])
def test_what_a_gang_has_above_its_minimum_goes_before_the_rest_of_it(needs: int) -> None:
    made = scene(4)
    made.running("low", *["n0"] * 4, minMember=2, **LOW)
    made.gang("high", 1, cpu=str(needs), **HIGH)
    session, _ = made.run(NO_GANGS)
    assert len(evicted(session)) == (needs if needs <= 2 else 4)


def test_a_gang_of_which_one_may_not_go_stays() -> None:
    made = scene(1, 1)
    made.group("low", minMember=2, phase="Running", **LOW)
    made.member("low", node="n0")
    made.member("low", node="n1", annotations={PREEMPTABLE: "false"})
    made.gang("high", 1, **HIGH)
    assert evicted(made.run(NO_GANGS)[0]) == []


def test_a_gang_with_a_member_on_its_way_to_a_node_stays() -> None:
    made = scene(2, 1)
    made.group("low", minMember=2, phase="Running", **LOW)
    made.member("low", cpu="2", node="n0")
    made.member("low", cpu="1")
    made.gang("high", 1, cpu="2", **HIGH)
    session, _ = made.run(NO_GANGS)
    assert bound(session) == {"low-1": "n1"}
    assert evicted(session) == []


def test_a_role_keeps_its_minimum_while_others_have_more() -> None:
    made = scene(4)
    made.group("low", minMember=2, minTaskMember={"first": 1, "other": 1}, phase="Running", **LOW)
    for role in ("other", "other", "other", "first"):
        made.member("low", node="n0", annotations={"volcano.sh/task-spec": role})
    made.gang("high", 2, **HIGH)
    session, _ = made.run(NO_GANGS)
    assert evicted(session) == ["low-2", "low-1"]


def test_of_a_role_no_more_go_than_it_has_above_its_minimum_though_the_gang_has_more() -> None:
    made = scene(2, 2)
    made.group("low", minMember=2, minTaskMember={"first": 1, "other": 1}, phase="Running", **LOW)
    for role, place in (("first", "n1"), ("first", "n1"), ("other", "n0"), ("other", "n0")):
        made.member("low", node=place, annotations={"volcano.sh/task-spec": role})
    made.running("rest", "n1", cpu="500m", **HIGH)
    made.gang("high", 1, cpu="2", **HIGH)
    assert len(evicted(made.run(NO_GANGS)[0])) == 4, "one of them alone, and then the gang as a whole"


def test_where_too_few_may_go_none_goes_and_all_run_as_before() -> None:
    made = scene(3, 1)
    made.group("low", minMember=3, phase="Running", **LOW)
    for _ in range(3):
        made.member("low", node="n0")
    made.member("low", node="n1", annotations={PREEMPTABLE: "false"})
    made.gang("high", 1, cpu="2", **HIGH)
    made.gang("middle", 1, priorityClassName="middle")
    session, _ = made.run(NO_GANGS)
    assert evicted(session) == ["low-2"], "for the one that needs no more"
    assert session.jobs["default/low"].count(TaskStatus.RUNNING) == 3
    assert claimed(session) == {"middle-0": "n0"}
