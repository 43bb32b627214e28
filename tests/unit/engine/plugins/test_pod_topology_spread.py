"""PodTopologySpread: against the plain reading of the rules, on recorded clusters and on drawn ones."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.framework.handle import Handle
from agent_scheduler.engine.plugins.pod_topology_spread import REASON, REASON_MISSING
from agent_scheduler.engine.state.nodeinfo import node_info
from agent_scheduler.objects import wire
from tests.decisions import plain, recording
from tests.decisions.engine import Engine
from tests.decisions.plain import Obj, pod_topology_spread
from tests.decisions.scene import scenes
from tests.support.engine import World, node, read_pod
from tests.support.examples import examples

from .spread_world import (
    FILTER,
    HOSTNAME,
    SCORE,
    ZONE,
    constraint,
    nodes,
    pending,
    place,
    placed,
    pod_with,
    ranks,
    refusals,
    refused,
    zones,
)


def test_a_domain_that_is_ahead_of_the_least_takes_no_more() -> None:
    world = zones("z1", "z1", "z2")
    body = pod_with(constraint())
    assert refused(world, body) == ["", "", ""]
    place(world, "b")
    assert refused(world, body) == [REASON, REASON, ""]
    place(world, "c")
    assert refused(world, body) == ["", "", ""]


def test_a_node_without_the_label_is_refused_for_good() -> None:
    assert refused(zones("z1", ""), pod_with(constraint())) == ["", REASON_MISSING]


def test_the_first_constraint_that_refuses_says_why() -> None:
    world = World(
        node("a", labels={ZONE: "z1", "rack": "r"}),
        node("b", labels={ZONE: "z1"}),
        node("c", labels={ZONE: "z2", "rack": "r"}),
    )
    place(world, "a")
    assert refused(world, pod_with(constraint(), constraint("rack"))) == [REASON, REASON, ""]
    assert refused(world, pod_with(constraint("rack"), constraint())) == [REASON, REASON_MISSING, ""]


def test_a_node_without_one_of_the_labels_counts_for_none_of_the_constraints() -> None:
    world = zones("", "z1", "z2")
    place(world, "a")
    place(world, "b")
    # By hostname alone the last node is the least; the first, which is not counted, has none too.
    assert refused(world, pod_with(constraint(HOSTNAME))) == [REASON, REASON, ""]
    assert refused(world, pod_with(constraint(HOSTNAME), constraint())) == [REASON_MISSING, REASON, ""]


def test_pods_that_are_being_deleted_or_elsewhere_do_not_count() -> None:
    world = zones("z1", "z2")
    place(world, "a", deletionTimestamp="2026-01-01T00:00:00Z")
    place(world, "a", namespace="other")
    assert refused(world, pod_with(constraint())) == ["", ""]


def test_with_fewer_domains_than_wanted_the_least_is_nothing() -> None:
    world = zones("z1", "z2")
    for name in ("a", "b"):
        place(world, name)
    assert refused(world, pod_with(constraint(minDomains=2))) == ["", ""]
    assert refused(world, pod_with(constraint(minDomains=3))) == [REASON, REASON]


def test_a_pod_that_does_not_match_its_own_selector_does_not_count_itself() -> None:
    world = zones("z1", "z2")
    place(world, "a")
    assert refused(world, pod_with(constraint(), app="other")) == ["", ""]
    place(world, "a")
    assert refused(world, pod_with(constraint(), app="other")) == [REASON, ""]


def test_nodes_that_the_pod_cannot_go_to_count_only_where_the_policies_say_so() -> None:
    taint = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    world = World(
        node("a", labels={ZONE: "z1", "disk": "ssd"}),
        node("b", labels={ZONE: "z2"}),
        node("c", labels={ZONE: "z3", "disk": "ssd"}, taints=taint),
    )
    place(world, "a")
    place(world, "c")
    only = {"nodeSelector": {"disk": "ssd"}}
    # z2 has none: where it counts, z1 is ahead.
    assert refused(world, pod_with(constraint(), **only))[0] == ""
    assert refused(world, pod_with(constraint(nodeAffinityPolicy="Ignore"), **only))[0] == REASON
    world.ledger.set_node(node("b", labels={ZONE: "z2"}, taints=taint))
    assert refused(world, pod_with(constraint()))[0] == REASON
    honors = constraint(nodeTaintsPolicy="Honor")
    assert refused(world, pod_with(honors))[0] == ""
    assert refused(world, pod_with(honors, tolerations=[{"key": "k", "operator": "Exists"}]))[0] == REASON


def test_two_constraints_on_one_key_may_have_policies_of_their_own() -> None:
    taint = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    ssd = {"disk": "ssd"}
    world = World(
        node("a", labels={ZONE: "z1", **ssd}),
        node("b", labels={ZONE: "z1", **ssd}, taints=taint),
        node("c", labels={ZONE: "z2", **ssd}),
    )
    place(world, "b")
    soft = constraint(whenUnsatisfiable="ScheduleAnyway", nodeTaintsPolicy="Honor")
    handle, columns = Handle(world.ledger), world.ledger.columns
    pod = read_pod(pod_with(constraint(), soft, nodeSelector=ssd), world.classes).cls
    assert [each is None for each in refusals(pod, handle, columns)] == [False, False, True]
    # The pod in z1 is on a node that does not count in ranks.
    assert ranks(pod, handle, columns, [0, 2]) == [100, 100]


def test_pods_without_constraints_and_those_of_the_other_half_are_left_out() -> None:
    world = zones("z1")
    handle = Handle(world.ledger)
    plain_pod = world.pod().cls
    hard = read_pod(pod_with(constraint()), world.classes).cls
    soft = read_pod(pod_with(constraint(whenUnsatisfiable="ScheduleAnyway")), world.classes).cls
    assert FILTER.prepare(plain_pod, handle) is None and SCORE.prepare(plain_pod, handle) is None
    assert FILTER.prepare(soft, handle) is None and SCORE.prepare(hard, handle) is None
    # Nobody asks, nobody is counted.
    assert not world.ledger.columns.matching


def test_a_state_answers_for_a_snapshot_and_for_the_ledger() -> None:
    world = zones("z1", "z2")
    snapshot = Snapshot(world.ledger)
    pod = read_pod(pod_with(constraint()), world.classes)
    state = FILTER.prepare(pod.cls, snapshot.handle)
    assert state is not None
    snapshot.take_new_counts()
    place(world, "a")
    rows = world.ledger.columns.all_rows()
    assert FILTER.feasible(state, world.ledger.columns, rows).tolist() == [False, True]
    assert FILTER.feasible(state, snapshot.columns, rows).tolist() == [True, True]
    snapshot.refresh()
    assert FILTER.feasible(state, snapshot.columns, rows).tolist() == [False, True]


def test_a_node_that_goes_takes_its_pods_out_of_the_count() -> None:
    world = zones("z1", "z2", "z3")
    place(world, "a")
    place(world, "b")
    pod = pod_with(constraint())
    assert refused(world, pod) == [REASON, REASON, ""]
    world.ledger.remove_node("c")
    assert refused(world, pod)[:2] == ["", ""]


def test_the_emptiest_domain_ranks_first_and_nodes_without_the_label_last() -> None:
    world = zones("z1", "z2", "z2", "")
    for name in ("a", "a", "b"):
        place(world, name)
    soft = read_pod(pod_with(constraint(whenUnsatisfiable="ScheduleAnyway")), world.classes)
    # Two zones weigh ln 4: 2.77 and 1.39, rounded 3 and 1.
    assert ranks(soft.cls, Handle(world.ledger), world.ledger.columns, [0, 1, 2, 3]) == [33, 100, 100, 0]
    assert ranks(soft.cls, Handle(world.ledger), world.ledger.columns, [3]) == [0]


@pytest.mark.parametrize("key", [ZONE, HOSTNAME])
def test_a_domain_ranks_last_however_many_pods_it_has(key: str) -> None:
    world = zones("z1", "z2")
    soft = read_pod(pod_with(constraint(whenUnsatisfiable="ScheduleAnyway", topologyKey=key)), world.classes)
    for _ in range(18):
        place(world, "a")
        assert ranks(soft.cls, Handle(world.ledger), world.ledger.columns, [0, 1]) == [0, 100]


# ---- against the plain reading


def compare(engine: Engine, pod: Obj, world: plain.World, feasible: list[int]) -> None:
    info = engine.read(pod, "asked")
    assert not info.cls.error, info.cls.error
    handle, columns = engine.snapshot.handle, engine.ledger.columns
    expected = [pod_topology_spread.refuse(pod, each, world) for each in world.nodes]
    assert refusals(info.cls, handle, columns) == expected
    nodes = [world.nodes[index] for index in feasible]
    scores = pod_topology_spread.score(pod, nodes, world)
    found = ranks(info.cls, handle, columns, feasible)
    assert found == (None if scores is None else list(scores.values()))


def test_recorded_clusters_are_decided_as_the_plain_reading_does() -> None:
    """Of every recorded case the pod that waits, and on all nodes, whatever other filters say."""
    constrained = 0
    for scene in scenes(recording.decisions()):
        if scene.case.pending["spec"].get("topologySpreadConstraints"):
            constrained += 1
            engine = Engine(scene.world)
            compare(engine, scene.case.pending, scene.world, list(range(len(scene.world.nodes))))
    assert constrained


@examples(400)
@given(nodes=nodes(), pods=st.lists(placed(), max_size=12), pod=pending(), data=st.data())
def test_drawn_clusters_are_decided_as_the_plain_reading_does(
    nodes: tuple[Obj, ...], pods: list[Obj], pod: Obj, data: st.DataObject
) -> None:
    world = plain.World(nodes, tuple(pods))
    every = list(range(len(nodes)))
    feasible = data.draw(st.lists(st.sampled_from(every), min_size=1, unique=True).map(sorted))
    compare(Engine(world), pod, world, feasible)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("node"), nodes()),
        st.tuples(st.just("no node"), st.integers(0, 5)),
        st.tuples(st.just("pod"), placed()),
        st.tuples(st.just("no pod"), st.integers(0, 20)),
    ),
    min_size=1,
    max_size=12,
)


@examples(300)
@given(steps=STEPS, pod=pending())
def test_a_state_that_is_kept_sees_every_change(steps: list[tuple[str, Any]], pod: Obj) -> None:
    engine = Engine(plain.World((), ()))
    info = engine.read(pod, "asked")
    ledger, snapshot = engine.ledger, engine.snapshot
    filters, scores = (plugin.prepare(info.cls, snapshot.handle) for plugin in (FILTER, SCORE))
    here: dict[str, Obj] = {}
    pods: dict[str, Obj] = {}
    for number, (what, value) in enumerate(steps):
        if what == "node":
            for each in value:
                here[each["metadata"]["name"]] = each
                ledger.set_node(node_info(msgspec.convert(each, wire.Node)))
        elif what == "no node":
            here.pop(f"n{value}", None)
            ledger.remove_node(f"n{value}")
        elif what == "pod":
            pods[f"u{number}"] = value
            ledger.set_pod(engine.read(value, f"u{number}"), value["spec"]["nodeName"])
        elif f"u{value}" in pods:
            del pods[f"u{value}"]
            ledger.remove_pod(f"u{value}")
        snapshot.take_new_counts()
        snapshot.refresh()
        names = sorted(here, key=ledger.rows.__getitem__)
        rows = np.array([ledger.rows[name] for name in names], dtype=np.intp)
        world = plain.World(tuple(here[name] for name in names), tuple(pods.values()))
        for columns in (ledger.columns, snapshot.columns):
            if filters is not None:
                expected = [pod_topology_spread.refuse(pod, each, world) is None for each in world.nodes]
                assert FILTER.feasible(filters, columns, rows).tolist() == expected
            if scores is not None and names:
                ranked = pod_topology_spread.score(pod, world.nodes, world)
                assert ranked is not None
                found = SCORE.normalize(SCORE.score(scores, columns, rows))
                assert found.tolist() == list(ranked.values())


def test_an_empty_cluster_is_no_reason_to_fail() -> None:
    world = World()
    both = constraint(), constraint(whenUnsatisfiable="ScheduleAnyway")
    pod, handle = read_pod(pod_with(*both), world.classes).cls, Handle(world.ledger)
    assert refusals(pod, handle, world.ledger.columns) == []
    assert ranks(pod, handle, world.ledger.columns, []) == []
