"""What a session as a whole promises."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.session.conf import QUEUE_ADMISSION_GATES, PluginOption
from agent_scheduler.engine.session.model import TaskStatus
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE, TASK_SPEC
from tests.support.engine import node
from tests.support.terms import preferring, term

from .scene import Everything, Part, Scene, bound, conf, has, runs, sized, status_of, told, waits

OURS = [{"name": QUEUE_ALLOCATION_GATE}]
MANAGED = {QUEUE_ALLOCATION_GATE: "true"}
GATED = conf(features=frozenset((QUEUE_ADMISSION_GATES,)))
DOWN = [{"type": "Ready", "status": "Unknown"}]
SAID = "Pod default/{} can possibly be assigned to n0, once {}minAvailable is satisfied"


def leaves(name: str, cpu: str) -> Part:
    """A pod that is being deleted there."""
    return has("old", {"cpu": cpu, "node": name, "deleting": True}, phase="Running")


def test_a_gang_that_fits_is_bound_in_one_commit() -> None:
    scene = sized(2, 2).holding(waits("g", 4))
    session, result = scene.run()
    assert len(bound(session)) == 4
    assert scene.cluster.commits == [("g", ["g-0", "g-1", "g-2", "g-3"], 4)]
    assert not result.pods


def test_of_a_gang_that_does_not_fit_nothing_is_sent() -> None:
    scene = sized(2).holding(waits("g", 3))
    session, result = scene.run()
    assert not scene.cluster.commits
    assert told(result) == {
        "g-0": ("Schedulable", SAID.format("g-0", "")),
        "g-1": ("Schedulable", SAID.format("g-1", "")),
        "g-2": ("Unschedulable", "0/1 nodes are unavailable: 1 Insufficient cpu."),
    }
    assert session.nodes.columns.taken[0] == scene.ledger.columns.taken[0]


def test_what_is_above_a_minimum_comes_after_the_gangs_of_others() -> None:
    session, _ = sized(4).holding(waits("first", 4, minMember=2), waits("second", 2)).run()
    assert sorted(bound(session)) == ["first-0", "first-1", "second-0", "second-1"]


def test_jobs_of_higher_priority_come_first() -> None:
    scene = sized(2).holding(waits("low", 2), waits("high", 2, priorityClassName="high"))
    scene.more["priorities"] = {"high": 10}
    session, _ = scene.run()
    assert sorted(bound(session)) == ["high-0", "high-1"]


def test_a_group_whose_queue_there_is_not_is_left_alone() -> None:
    session, result = sized(4).holding(waits("g", queue="nowhere")).run()
    assert not session.jobs and not result.groups


def test_what_the_committer_refuses_is_pending_again_and_takes_no_room() -> None:
    scene = sized(2).holding(waits("g", 2), waits("later", 2))
    scene.cluster = Everything("g-0", "g-1")
    session, result = scene.run()
    assert sorted(bound(session)) == ["later-0", "later-1"]
    assert status_of(result, "g").phase == "Inqueue"
    assert len(session.jobs["default/g"].by_status[TaskStatus.PENDING]) == 2


@pytest.mark.parametrize(
    ("part", "commits"),
    [
        (has("g", {"node": "n0"}, {}, {}, minMember=3, phase="Running"), [("g", ["g-1", "g-2"], 2)]),
        (waits("g", 3, minMember=1), [("g", ["g-0"], 1), ("g", ["g-1"], 0), ("g", ["g-2"], 0)]),
    ],
    ids=["members that run count", "what is above the minimum comes without one"],
)
def test_a_commit_has_the_minimum_that_is_still_to_be_had(part: Part, commits: Any) -> None:
    scene = sized(4).holding(part)
    scene.run()
    assert scene.cluster.commits == commits


def test_a_pod_that_is_deleted_leaves_room_to_come_and_none_yet() -> None:
    session, result = sized(1).holding(leaves("n0", "1"), waits("new")).run()
    assert not bound(session)
    text = SAID.format("new-0", "resource is released and ")
    assert told(result)["new-0"] == ("Unschedulable", text)


def test_a_gang_with_a_member_that_is_deleted_before_it_had_a_node_says_that_it_is_unschedulable() -> None:
    """Nothing that it waits for is about to come free."""
    _, result = sized(1).holding(has("g", {"deleting": True}, {"cpu": "2"})).run()
    (condition,) = status_of(result, "g").conditions or ()
    assert (condition.type, condition.reason) == ("Unschedulable", "NotEnoughResources")


def test_a_row_that_has_room_now_goes_before_a_better_one_that_will_have_it() -> None:
    session, _ = sized(2, 32).holding(leaves("n1", "32"), waits("new", 2)).run()
    assert bound(session) == {"new-0": "n0", "new-1": "n0"}


def test_nodes_that_have_room_now_are_ranked_among_themselves() -> None:
    """One that is preferred more, but has room only later, would make little of what the others are preferred by."""
    scene = Scene(
        node("liked", cpu="20", labels={"like": "little"}),
        node("large", cpu="100"),
        node("later", cpu="1", labels={"like": "much"}),
    )
    preferred = preferring((1, term("like", "little")), (100, term("like", "much")))
    scene.holding(leaves("later", "1"), has("new", {"affinity": {"nodeAffinity": preferred}}))
    weights = {"leastrequested.weight": 10, "nodeaffinity.weight": 1, "balancedresource.weight": 0}
    session, _ = scene.run(conf("priority", "gang", "predicates", PluginOption("nodeorder", weights)))
    assert bound(session) == {"new-0": "liked"}


def test_pods_without_requests_are_backfilled_onto_full_nodes() -> None:
    session, _ = sized(1).holding(waits("g"), waits("free", cpu="")).run()
    assert bound(session) == {"g-0": "n0", "free-0": "n0"}


@pytest.mark.parametrize(
    ("taints", "text"), [([], ""), ([{"key": "k", "effect": "NoSchedule"}], "1 node(s) had untolerated taint(s), ")]
)
def test_a_node_that_is_full_of_pods_says_so_in_a_backfill_beside_what_else_it_refuses_for(
    taints: list[dict[str, str]], text: str
) -> None:
    scene = Scene(node("a", pods="1", taints=taints))
    _, result = scene.holding(runs("runs", "a"), waits("free", cpu="")).run()
    text = f"0/1 nodes are unavailable: {text}1 node(s) pod number exceeded."
    assert told(result) == {"free-0": ("Unschedulable", text)}


def test_a_node_that_is_not_ready_is_counted_by_its_taint_as_in_the_fast_paths_words() -> None:
    """Of others that there is no room comes first, as Volcano says it."""
    taints = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    down = node("b", cpu="1", taints=taints, conditions=DOWN)
    scene = Scene(node("a", cpu="1"), down, node("c", cpu="1", taints=taints))
    _, result = scene.holding(waits("g", cpu="2")).run()
    text = "0/3 nodes are unavailable: 1 node(s) had untolerated taint(s), 2 Insufficient cpu."
    assert told(result) == {"g-0": ("Unschedulable", text)}


def test_a_gated_pod_is_let_in_and_bound_in_a_later_session() -> None:
    session, result = sized(4).holding(has("g", {"annotations": MANAGED, "schedulingGates": OURS})).run(GATED)
    assert not bound(session)
    assert [pod.name for pod in result.ungated] == ["g-0"]
    assert not result.pods


@pytest.mark.parametrize(
    ("gates", "annotations", "features"),
    [
        (OURS, {}, True),
        (OURS, {QUEUE_ALLOCATION_GATE: "yes"}, True),
        (OURS, MANAGED, False),
        ([*OURS, {"name": "example.com/wait"}], MANAGED, True),
        ([{"name": "example.com/wait"}], MANAGED, True),
    ],
)
def test_no_other_gate_is_touched(gates: list[dict[str, str]], annotations: dict[str, str], features: bool) -> None:
    scene = sized(4).holding(has("g", {"annotations": annotations, "schedulingGates": gates}))
    session, result = scene.run(GATED if features else conf())
    assert not bound(session) and not result.ungated


def test_a_role_that_found_no_node_is_not_tried_again_for_the_same_job() -> None:
    worker = {"cpu": "2", "annotations": {TASK_SPEC: "worker"}}
    _, result = sized(1).holding(has("g", *[worker] * 4, minTaskMember={"worker": 1})).run()
    assert told(result)["g-0"][1] == "0/1 nodes are unavailable: 1 Insufficient cpu."


def test_a_gang_goes_on_without_a_role_that_has_its_minimum() -> None:
    big, small = ({"cpu": cpu, "annotations": {TASK_SPEC: role}} for role, cpu in (("big", "2"), ("small", "1")))
    scene = sized(3).holding(has("g", big, big, small, minMember=2, minTaskMember={"big": 1, "small": 1}))
    assert sorted(bound(scene.run()[0])) == ["g-0", "g-2"]


def test_an_action_that_is_not_named_is_not_done() -> None:
    scene = sized(4).holding(waits("g"))
    session, result = scene.run(conf(actions="enqueue"))
    assert not bound(session)
    assert status_of(result, "g").phase == "Inqueue"
    assert bound(scene.run(conf(actions="allocate"))[0]), "without enqueue groups are taken as they are"


def test_a_group_without_a_minimum_of_members_is_not_looked_at() -> None:
    session, result = sized(4).holding(waits("g", 2, minMember=3)).run()
    assert not bound(session)
    assert told(result)["g-0"][1].startswith("pod group is not ready, 2 Pending, 3 minAvailable")


def test_a_node_that_is_not_ready_adds_nothing_to_what_is_shared() -> None:
    scene = Scene(node("a", cpu="2"), node("b", cpu="4", conditions=DOWN))
    assert scene.session().total["cpu"] == 2000
    scene.ledger.set_node(node("b", cpu="4"))
    assert scene.session().total["cpu"] == 6000
