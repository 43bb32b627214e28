"""What a session as a whole promises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.quotas.queues import QueueInfo
from agent_scheduler.engine.session.conf import QUEUE_ADMISSION_GATES, PluginOption
from agent_scheduler.engine.session.model import TaskStatus
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE
from tests.support.engine import node

from .scene import Everything, Scene, bound, conf, status_of, told

OURS = [{"name": QUEUE_ALLOCATION_GATE}]
MANAGED = {QUEUE_ALLOCATION_GATE: "true"}


def test_a_gang_that_fits_is_bound_in_one_commit() -> None:
    scene = Scene(node("a", cpu="2"), node("b", cpu="2"))
    scene.gang("g", 4)
    session, result = scene.run()
    assert len(bound(session)) == 4
    assert scene.cluster.commits == [("g", ["g-0", "g-1", "g-2", "g-3"], 4)]
    assert not result.pods


def test_of_a_gang_that_does_not_fit_nothing_is_sent() -> None:
    scene = Scene(node("a", cpu="2"))
    scene.gang("g", 3)
    session, result = scene.run()
    assert not scene.cluster.commits
    assert told(result) == {
        "g-0": (
            "Schedulable",
            "Pod default/g-0 can possibly be assigned to a, once minAvailable is satisfied",
        ),
        "g-1": (
            "Schedulable",
            "Pod default/g-1 can possibly be assigned to a, once minAvailable is satisfied",
        ),
        "g-2": ("Unschedulable", "0/1 nodes are unavailable: 1 Insufficient cpu."),
    }
    assert session.nodes.columns.taken[0] == scene.ledger.columns.taken[0]


def test_what_is_above_a_minimum_comes_after_the_gangs_of_others() -> None:
    scene = Scene(node("a", cpu="4"))
    scene.gang("first", 4, minMember=2)
    scene.gang("second", 2)
    session, _ = scene.run()
    assert sorted(bound(session)) == ["first-0", "first-1", "second-0", "second-1"]


def test_jobs_of_higher_priority_come_first() -> None:
    scene = Scene(node("a", cpu="2"))
    scene.more["priorities"] = {"high": 10}
    scene.gang("low", 2)
    scene.gang("high", 2, priorityClassName="high")
    session, _ = scene.run()
    assert sorted(bound(session)) == ["high-0", "high-1"]


def test_a_group_whose_queue_there_is_not_is_left_alone() -> None:
    scene = Scene(node("a"))
    scene.gang("g", 1, queue="nowhere")
    session, result = scene.run()
    assert not session.jobs
    assert not result.groups


def test_what_the_committer_refuses_is_pending_again_and_takes_no_room() -> None:
    scene = Scene(node("a", cpu="2"))
    scene.cluster = Everything("g-0", "g-1")
    scene.gang("g", 2)
    scene.gang("later", 2)
    session, result = scene.run()
    assert sorted(bound(session)) == ["later-0", "later-1"]
    assert status_of(result, "g").phase == "Inqueue"
    assert session.jobs["default/g"].by_status[TaskStatus.PENDING].keys() == {
        pod.uid for pod in scene.members[scene.groups[0].key]
    }


def test_members_that_run_count_for_the_minimum_of_a_commit() -> None:
    scene = Scene(node("a"))
    scene.group("g", minMember=3, phase="Running")
    scene.member("g", node="a")
    for _ in range(2):
        scene.member("g")
    scene.run()
    assert scene.cluster.commits == [("g", ["g-1", "g-2"], 2)]


def test_what_is_above_the_minimum_is_committed_without_one() -> None:
    scene = Scene(node("a"))
    scene.gang("g", 3, minMember=1)
    scene.run()
    assert [minimum for _, _, minimum in scene.cluster.commits] == [1, 0, 0]


def test_a_pod_that_is_deleted_leaves_room_to_come_and_none_yet() -> None:
    scene = Scene(node("a", cpu="1"))
    scene.group("old", phase="Running")
    scene.member("old", node="a", deleting=True)
    scene.gang("new", 1)
    session, result = scene.run()
    assert not bound(session)
    text = "Pod default/new-0 can possibly be assigned to a, once resource is released and minAvailable is satisfied"
    assert told(result)["new-0"] == ("Unschedulable", text)


def test_a_gang_with_a_member_that_is_deleted_before_it_had_a_node_says_that_it_is_unschedulable() -> None:
    """Nothing that it waits for is about to come free."""
    scene = Scene(node("a", cpu="1"))
    scene.group("g")
    scene.member("g", "gone", deleting=True)
    scene.member("g", "large", cpu="2")
    _, result = scene.run()
    conditions = status_of(result, "g").conditions
    assert [(each.type, each.reason) for each in conditions or ()] == [
        ("Unschedulable", "NotEnoughResources")
    ]


def test_a_row_that_has_room_now_goes_before_a_better_one_that_will_have_it() -> None:
    scene = Scene(node("small", cpu="2"), node("large", cpu="32"))
    scene.group("old", phase="Running")
    scene.member("old", cpu="32", node="large", deleting=True)
    scene.gang("new", 2)
    session, _ = scene.run()
    assert bound(session) == {"new-0": "small", "new-1": "small"}


def test_nodes_that_have_room_now_are_ranked_among_themselves() -> None:
    """One that is preferred more, but has room only later, would make little of what the others are preferred by."""
    scene = Scene(
        node("liked", cpu="20", labels={"like": "little"}),
        node("large", cpu="100"),
        node("later", cpu="1", labels={"like": "much"}),
    )
    scene.group("old", phase="Running")
    scene.member("old", cpu="1", node="later", deleting=True)
    scene.group("new")
    preferred = [
        {
            "weight": weight,
            "preference": {"matchExpressions": [{"key": "like", "operator": "In", "values": [value]}]},
        }
        for weight, value in ((1, "little"), (100, "much"))
    ]
    scene.member(
        "new", affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    )
    weights = {"leastrequested.weight": 10, "nodeaffinity.weight": 1, "balancedresource.weight": 0}
    session, _ = scene.run(conf("priority", "gang", "predicates", PluginOption("nodeorder", weights)))
    assert bound(session) == {"new-0": "liked"}


def test_pods_without_requests_are_backfilled_onto_full_nodes() -> None:
    scene = Scene(node("a", cpu="1"))
    scene.gang("g", 1)
    scene.gang("free", 1, cpu="")
    session, _ = scene.run()
    assert bound(session) == {"g-0": "a", "free-0": "a"}


@pytest.mark.parametrize(
    ("taints", "text"),
    [([], ""), ([{"key": "k", "effect": "NoSchedule"}], "1 node(s) had untolerated taint(s), ")],
)
def test_a_node_that_is_full_of_pods_says_so_in_a_backfill_beside_what_else_it_refuses_for(
    taints: list[dict[str, str]], text: str
) -> None:
    scene = Scene(node("a", pods="1", taints=taints))
    scene.running("runs", "a")
    scene.gang("free", 1, cpu="")
    _, result = scene.run()
    text = f"0/1 nodes are unavailable: {text}1 node(s) pod number exceeded."
    assert told(result) == {"free-0": ("Unschedulable", text)}


def test_a_node_that_is_not_ready_is_counted_by_its_taint_as_in_the_fast_paths_words() -> None:
    """Of others that there is no room comes first, as Volcano says it."""
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    down = [{"type": "Ready", "status": "False"}]
    scene = Scene(
        node("a", cpu="1"),
        node("b", cpu="1", taints=[taint], conditions=down),
        node("c", cpu="1", taints=[taint]),
    )
    scene.gang("g", 1, cpu="2")
    _, result = scene.run()
    text = "0/3 nodes are unavailable: 1 node(s) had untolerated taint(s), 2 Insufficient cpu."
    assert told(result) == {"g-0": ("Unschedulable", text)}


def test_a_gated_pod_is_let_in_and_bound_in_a_later_session() -> None:
    scene = Scene(node("a"))
    scene.group("g")
    scene.member("g", annotations=MANAGED, schedulingGates=OURS)
    how = conf(features=frozenset((QUEUE_ADMISSION_GATES,)))
    session, result = scene.run(how)
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
def test_no_other_gate_is_touched(
    gates: list[dict[str, str]], annotations: dict[str, str], features: bool
) -> None:
    scene = Scene(node("a"))
    scene.group("g")
    scene.member("g", annotations=annotations, schedulingGates=gates)
    how = conf(features=frozenset((QUEUE_ADMISSION_GATES,) if features else ()))
    session, result = scene.run(how)
    assert not bound(session)
    assert not result.ungated


def test_a_role_that_found_no_node_is_not_tried_again_for_the_same_job() -> None:
    scene = Scene(node("a", cpu="1"))
    scene.group("g", minMember=1, minTaskMember={"worker": 1})
    role = {"volcano.sh/task-spec": "worker"}
    for _ in range(4):
        scene.member("g", cpu="2", annotations=role)
    _, result = scene.run()
    assert told(result)["g-0"][1] == "0/1 nodes are unavailable: 1 Insufficient cpu."


def test_a_gang_goes_on_without_a_role_that_has_its_minimum() -> None:
    scene = Scene(node("a", cpu="3"))
    scene.group("g", minMember=2, minTaskMember={"big": 1, "small": 1})
    scene.member("g", cpu="2", annotations={"volcano.sh/task-spec": "big"})
    scene.member("g", cpu="2", annotations={"volcano.sh/task-spec": "big"})
    scene.member("g", cpu="1", annotations={"volcano.sh/task-spec": "small"})
    session, _ = scene.run()
    assert sorted(bound(session)) == ["g-0", "g-2"]


def test_an_action_that_is_not_named_is_not_done() -> None:
    scene = Scene(node("a"))
    scene.gang("g", 1)
    session, result = scene.run(conf(actions="enqueue"))
    assert not bound(session)
    assert status_of(result, "g").phase == "Inqueue"


def test_without_enqueue_groups_are_taken_as_they_are() -> None:
    scene = Scene(node("a"))
    scene.gang("g", 1)
    session, _ = scene.run(conf(actions="allocate"))
    assert bound(session)


def test_a_group_without_a_minimum_of_members_is_not_looked_at() -> None:
    scene = Scene(node("a"))
    scene.gang("g", 2, minMember=3)
    session, result = scene.run()
    assert not bound(session)
    assert told(result)["g-0"][1].startswith("pod group is not ready, 2 Pending, 3 minAvailable")


@given(st.data())
def test_no_gang_is_bound_in_part_and_no_node_is_overfull(data: st.DataObject) -> None:
    nodes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    scene = Scene(*(node(f"n{number}", cpu=str(cpu)) for number, cpu in enumerate(nodes)))
    scene.queues.append(QueueInfo(name="other", parent="root"))
    for number in range(data.draw(st.integers(1, 5))):
        pods = data.draw(st.integers(1, 4))
        scene.gang(
            f"g{number}",
            pods,
            cpu=str(data.draw(st.integers(1, 3))),
            minMember=data.draw(st.integers(1, pods)),
            queue=data.draw(st.sampled_from(["default", "other"])),
        )
    session, _ = scene.run(
        conf("priority", "gang", "drf", "predicates", "proportion", "nodeorder", "binpack")
    )
    for job in session.jobs.values():
        sent = len(session.bound.get(job.uid, ()))
        assert not sent or sent >= job.minimum
    columns = session.nodes.columns
    for offers, taken in zip(columns.offers, columns.taken, strict=True):
        assert taken[0] <= offers[0]


def test_a_node_that_is_not_ready_adds_nothing_to_what_is_shared() -> None:
    down = [{"type": "Ready", "status": "Unknown"}]
    scene = Scene(node("a", cpu="2"), node("b", cpu="4", conditions=down))
    assert scene.session().total["cpu"] == 2000
    scene.ledger.set_node(node("b", cpu="4"))
    assert scene.session().total["cpu"] == 6000
