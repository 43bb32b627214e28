"""Which nodes a session takes first, which not at all, what room and which GPUs it counts on, and leaves to others."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from agent_scheduler.engine.state.gpus import RESOURCE
from tests.support.engine import node
from tests.support.terms import beside, pod_term

from .scene import SCHEDULER, Part, Scene, Shard, bound, claimed, conf, evicted, has, runs, sized, told, waits


def leaves(name: str, **more: Any) -> Part:
    """A pod that is being deleted there."""
    return has("old", {"node": name, "deleting": True, **more}, phase="Running")


# ---- nodes that are shared


def test_nodes_of_the_own_shard_come_first_and_those_of_others_where_no_own_one_has_room() -> None:
    made = sized(2, 8).holding(waits("g", 3))
    made.shared = Shard("soft", "n0")
    session, _ = made.run()
    assert bound(session) == {"g-0": "n0", "g-1": "n0", "g-2": "n1"}


def test_a_node_of_others_that_has_room_now_comes_before_an_own_one_that_will_have_it() -> None:
    made = sized(1, 8).holding(leaves("n0"), waits("g"))
    made.shared = Shard("soft", "n0")
    assert bound(made.run()[0]) == {"g-0": "n1"}


def test_pods_of_own_nodes_are_evicted_before_those_of_others() -> None:
    made = sized(2, 2)
    made.shared = Shard("soft", "n1")
    made.more["priorities"] = {"high": 9}
    made.running("low", "n0", "n1", "n1", cpu="1")
    made.gang("g", 1, cpu="2", priorityClassName="high")
    session, _ = made.run(conf("priority", "predicates", "nodeorder", actions="enqueue allocate preempt"))
    assert claimed(session) == {"g-0": "n1"}
    assert sorted(evicted(session)) == ["low-1", "low-2"]


def test_in_a_shard_of_ones_own_alone_nodes_of_others_are_neither_taken_nor_room_for_groups() -> None:
    made = sized(2, 8).holding(waits("g", 3, minMember=1), has("large", minResources={"cpu": "3"}))
    made.shared = Shard("hard", "n0")
    session, result = made.run(conf("priority", "gang", "overcommit", "predicates", "nodeorder"))
    assert bound(session) == {"g-0": "n0", "g-1": "n0"}
    assert session.jobs["default/large"].is_pending, "1.2 times 2 is less than 3"
    assert session.total["cpu"] == 10_000, "queues share what all nodes offer"
    assert told(result)["g-2"][1] == (
        "0/2 nodes are unavailable: 1 Insufficient cpu, 1 node isn't in scheduler node shard."
    )


# ---- room


@pytest.mark.parametrize(
    ("spec", "is_room"),
    [({}, True), ({"ports": [80]}, False), ({"affinity": beside("podAntiAffinity", pod_term())}, False)],
)
def test_room_that_a_pod_leaves_counts_unless_it_is_in_the_way_otherwise_until_it_is_gone(
    spec: dict[str, Any], is_room: bool
) -> None:
    assert bool(claimed(sized(1).holding(leaves("n0", **spec), waits("g")).run()[0])) is is_room


def test_of_several_that_leave_and_claim_a_node_each_counts_once() -> None:
    """Two leave 3 of 4, of which two claims take 2: there is room for one more claim, and now for none."""
    old = has("old", *({"cpu": cpu, "node": "n0", "deleting": True} for cpu in ("1", "2")), phase="Running")
    session, _ = sized(4).holding(old, runs("stays", "n0"), *(waits(f"g{number}") for number in range(4))).run()
    assert claimed(session) == {"g0-0": "n0", "g1-0": "n0", "g2-0": "n0"}
    assert bound(session) == {}


@pytest.mark.parametrize(
    ("nominated", "expected"), [("", "n1"), ("n0", "n0"), ("n2", "n1"), ("gone", "n1"), ("n3", "n1")]
)
def test_a_pod_goes_where_it_is_nominated_to_if_there_is_room(nominated: str, expected: str) -> None:
    made = sized(2, 16, 1)
    made.ledger.set_node(node("n3", cpu="8"))
    made.nominate("other", "n3", cpu="8")
    made.holding(runs("runs", "n2"), has("g", {}))
    members = made.members[made.groups[-1].key]
    members[0] = replace(members[0], nominated_node_name=nominated)
    assert bound(made.run()[0]) == {"g-0": expected}


def test_why_no_node_would_do_is_said_of_each_class_as_things_stand_then() -> None:
    """After the first gang took a node the second one finds it full."""
    made = sized(4, 2).holding(waits("large", cpu="5"), waits("takes", cpu="4"), waits("late", cpu="3"))
    said = told(made.run()[1])
    assert said["large-0"][1] == said["late-0"][1] == "0/2 nodes are unavailable: 2 Insufficient cpu."


def test_a_node_is_left_to_the_pod_that_is_nominated_there() -> None:
    scene = sized(4, 2).holding(waits("g", 2))
    scene.nominate("fast", "n0", cpu="4")
    session, _ = scene.run()
    assert bound(session) == {"g-0": "n1", "g-1": "n1"}
    assert len(scene.cluster.commits) == 1


@pytest.mark.parametrize(("priority", "is_bound"), [(9, False), (10, False), (11, True)])
def test_only_who_is_of_higher_priority_takes_the_room(priority: int, is_bound: bool) -> None:
    scene = sized(4).holding(has("g", {"priority": priority}))
    scene.nominate("fast", "n0", cpu="4", priority=10)
    session, result = scene.run()
    assert bool(bound(session)) is is_bound
    if not is_bound:
        (why,) = session.jobs["default/g"].fit_errors.values()
        assert why.plugins == {"NodeResourcesFit"}
        assert told(result)["g-0"][1] == "0/1 nodes are unavailable: 1 Insufficient cpu."


def test_what_is_beside_the_room_is_free() -> None:
    scene = sized(4).holding(waits("g", 3, minMember=1))
    scene.nominate("fast", "n0", cpu="2")
    assert sorted(bound(scene.run()[0])) == ["g-0", "g-1"]


def test_what_a_pod_that_is_nominated_keeps_away_stays_away() -> None:
    scene = Scene(node("a", cpu="4", labels={"zone": "z"}), node("b", cpu="1"))
    scene.nominate("fast", "a", affinity=beside("podAntiAffinity", pod_term("g")))
    session, _ = scene.holding(has("g", {"labels": {"app": "g"}})).run()
    assert bound(session) == {"g-0": "b"}


def test_room_that_is_to_come_is_shared_with_who_is_nominated() -> None:
    """What leaves makes room for both, and there is no room for the gang before."""
    old = has("old", {"cpu": "2", "node": "n0", "deleting": True}, phase="Running")
    scene = sized(4).holding(old, waits("g", cpu="2"))
    scene.nominate("fast", "n0", cpu="2")
    session, result = scene.run()
    assert not bound(session)
    assert "once resource is released" in told(result)["g-0"][1]


def test_nobody_is_evicted_for_room_that_is_kept_for_another() -> None:
    scene = sized(2).holding(runs("low", "n0", cpu="2"), waits("g", cpu="2", priorityClassName="high"))
    scene.more["priorities"] = {"high": 10}
    scene.nominate("fast", "n0", cpu="2", priority=100)
    scene.run(conf("priority", "gang", "predicates", actions="enqueue allocate preempt"))
    assert not scene.cluster.evictions


def test_claims_of_its_own_pods_are_the_sessions_to_decide() -> None:
    scene = sized(2)
    (pod,) = scene.gang("old", 1, cpu="2")
    scene.nominator.add(pod, "n0")
    assert pod.scheduler_name == SCHEDULER
    session, _ = scene.holding(has("new", {"cpu": "2"}, created="2025-01-01T00:00:00Z")).run()
    assert bound(session) == {"new-0": "n0"}


PREEMPTING = conf("priority", "gang", actions="enqueue allocate preempt")


HIGH = {"priorityClassName": "high"}


def gpu(amount: int) -> dict[str, Any]:
    requests = {"cpu": "100m", RESOURCE: str(amount)}
    return {"cpu": "", "containers": [{"name": "c", "resources": {"requests": requests}}]}


def with_gpus(*used: tuple[str, int, int], devices: int = 2) -> Scene:
    """`used`: the group, amount and GPU of each pod that runs; those of `above` may not be evicted, of `old` leave."""
    scene = Scene(node("n0", extended={RESOURCE: str(devices * 1000)}))
    scene.more["priorities"] = {"high": 10}
    scene.holding(
        *(has(name, phase="Running", **(HIGH if name == "above" else {})) for name in ("low", "above", "old"))
    )
    for group, amount, index in used:
        pod = scene.member(group, node="n0", deleting=group == "old", **gpu(amount))
        scene.ledger.set_pod(replace(pod, gpus=(index,)), "n0")
    return scene


def test_a_member_is_not_bound_where_there_are_parts_of_several_gpus_alone() -> None:
    scene = with_gpus(("low", 500, 0), ("low", 500, 1)).holding(has("g", gpu(700)))
    session, result = scene.run(conf("priority", "gang"))
    assert not bound(session)
    assert "1 node(s) didn't have a GPU with enough left" in told(result)["g-0"][1]


def test_members_of_several_gangs_do_not_count_twice_as_they_are_bound() -> None:
    scene = with_gpus(devices=4)
    scene.holding(*(has(name, gpu(700), gpu(700), minMember=2) for name in ("first", "second")))
    assert len(bound(scene.run()[0])) == 4


def test_nobody_is_evicted_whose_leaving_makes_no_gpu_large_enough() -> None:
    scene = with_gpus(*(use for index in (0, 1) for use in (("above", 400, index), ("low", 300, index))))
    scene.holding(has("g", gpu(700), **HIGH)).run(PREEMPTING)
    assert not scene.cluster.evictions


def test_those_are_evicted_who_leave_a_gpu_that_is_large_enough() -> None:
    scene = with_gpus(("low", 300, 0), ("low", 400, 0), devices=1)
    scene.holding(has("g", gpu(700), **HIGH)).run(PREEMPTING)
    assert [name for name, _ in scene.cluster.evictions] == ["low-1"]


def test_a_gpu_of_a_pod_that_leaves_is_waited_for() -> None:
    session, result = with_gpus(("old", 700, 0), ("low", 500, 1)).holding(has("g", gpu(700))).run()
    assert not bound(session)
    assert "once resource is released" in told(result)["g-0"][1]
