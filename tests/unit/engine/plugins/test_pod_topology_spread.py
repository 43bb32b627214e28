"""PodTopologySpread: its rules, what it keeps against the plain reading, and pods without constraints of their own."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.framework.args import PodTopologySpreadArgs
from agent_scheduler.engine.framework.handle import Handle
from agent_scheduler.engine.plugins.pod_topology_spread import (
    PodTopologySpread,
    PodTopologySpreadScore,
    default_spread,
)
from agent_scheduler.engine.state.labelselector import label_selector
from agent_scheduler.engine.state.nodeinfo import node_info
from agent_scheduler.engine.state.owners import OwnerKind
from agent_scheduler.engine.state.podclass import PodClass
from agent_scheduler.objects import wire
from tests.decisions import plain
from tests.decisions.clusters import Drawn
from tests.decisions.engine import Engine
from tests.decisions.plain import Obj, pod_topology_spread
from tests.support.engine import World, node
from tests.support.examples import examples
from tests.support.terms import HOSTNAME, ZONE, spread

from .spread_world import FILTER, SCORE, clusters, place, ranks, refusals, waiting, zones


def test_two_constraints_on_one_key_may_have_policies_of_their_own() -> None:
    taint = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    ssd = {"disk": "ssd"}
    world = World(
        node("a", labels={ZONE: "z1", **ssd}),
        node("b", labels={ZONE: "z1", **ssd}, taints=taint),
        node("c", labels={ZONE: "z2", **ssd}),
    )
    place(world, "b")
    soft = spread(when="ScheduleAnyway", nodeTaintsPolicy="Honor")
    handle, columns = world.handle, world.columns
    pod = waiting(world, spread(), soft, nodeSelector=ssd).cls
    assert [each is None for each in refusals(pod, handle, columns)] == [False, False, True]
    # The pod in z1 is on a node that does not count in ranks.
    assert ranks(pod, handle, columns, [0, 2]) == [100, 100]


def test_pods_without_constraints_and_those_of_the_other_half_are_left_out() -> None:
    world = zones("z1")
    handle = world.handle
    plain_pod = world.pod().cls
    hard = waiting(world, spread()).cls
    soft = waiting(world, spread(when="ScheduleAnyway")).cls
    assert FILTER.prepare(plain_pod, handle) is None and SCORE.prepare(plain_pod, handle) is None
    assert FILTER.prepare(soft, handle) is None and SCORE.prepare(hard, handle) is None
    # Nobody asks, nobody is counted.
    assert not world.columns.matching


# ---- against the plain reading


STEPS = st.lists(
    st.tuples(st.sampled_from(("node", "no node", "pod", "pod", "no pod")), st.integers(0, 24)),
    min_size=1,
    max_size=16,
)


@examples(100)
@given(drawn=clusters(), later=clusters(), steps=STEPS)
def test_a_state_that_is_kept_sees_every_change(
    drawn: Drawn, later: Drawn, steps: list[tuple[str, int]]
) -> None:
    engine, pod = Engine(plain.World((), ())), drawn.pending
    info = engine.read(pod, "asked")
    ledger, snapshot = engine.ledger, engine.snapshot
    filters, scores = (plugin.prepare(info.cls, snapshot.handle) for plugin in (FILTER, SCORE))
    nodes, placed = (*drawn.world.nodes, *later.world.nodes), (*drawn.world.pods, *later.world.pods)
    here: dict[str, Obj] = {}
    pods: dict[str, Obj] = {}
    for what, number in [("node", index) for index in range(len(drawn.world.nodes))] + steps:
        if what == "node":
            each = nodes[number % len(nodes)]
            here[each["metadata"]["name"]] = each
            ledger.set_node(node_info(msgspec.convert(each, wire.Node)))
        elif what == "no node":
            here.pop(f"n{number}", None)
            ledger.remove_node(f"n{number}")
        elif what == "pod" and placed:
            pods[f"u{number}"] = each = placed[number % len(placed)]
            ledger.set_pod(engine.read(each, f"u{number}"), each["spec"]["nodeName"])
        elif f"u{number}" in pods:
            del pods[f"u{number}"]
            ledger.remove_pod(f"u{number}")
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
    both = spread(), spread(when="ScheduleAnyway")
    pod, handle = waiting(world, *both).cls, world.handle
    assert refusals(pod, handle, world.columns) == []
    assert ranks(pod, handle, world.columns, []) == []


def by_default(world: World, app: str = "web", **spec: Any) -> tuple[PodClass, Handle]:
    """The class of a pod without constraints while a service selects all with its label `app`."""
    selected = wire.LabelSelector(match_labels={"app": app})
    world.owners.set(OwnerKind.SERVICE, "default", "s", label_selector(selected, ""))
    return world.handle.class_of(world.pod(labels={"app": app}, **spec)), world.handle


DEFAULT = {"topologyKey": ZONE, "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2}
SOFT = {
    "topologyKey": "rack",
    "maxSkew": 3,
    "whenUnsatisfiable": "ScheduleAnyway",
    "nodeAffinityPolicy": "Ignore",
    "nodeTaintsPolicy": "Honor",
}


def args(**given: Any) -> PodTopologySpreadArgs:
    return msgspec.convert(given, PodTopologySpreadArgs)


@examples(300)
@given(drawn=clusters(), app=st.sampled_from(["a", "b"]))
def test_constraints_by_default_are_as_if_the_pod_had_them(drawn: Drawn, app: str) -> None:
    engine = Engine(drawn.world)
    world = World()
    world.ledger, world.classes = engine.ledger, engine.classes
    rules = default_spread(args(defaultingType="List", defaultConstraints=[DEFAULT, SOFT]))
    selector = {"labelSelector": {"matchLabels": {"app": app}}}
    chooses = {"nodeSelector": {"disk": "ssd"}}
    explicit = waiting(world, DEFAULT | selector, SOFT | selector, app=app, **chooses).cls
    pod, handle = by_default(world, app, **chooses)
    columns, every = world.columns, list(range(len(drawn.world.nodes)))
    assert refusals(pod, handle, columns, PodTopologySpread(rules)) == refusals(explicit, handle, columns)
    ranked = ranks(pod, handle, columns, every, PodTopologySpreadScore(rules))
    assert ranked is not None and ranked == ranks(explicit, handle, columns, every)


def test_by_the_system_s_default_pods_are_spread_over_hostnames_and_zones_where_these_are_known() -> None:
    world = zones("z1", "z2", "")
    place(world, "a", "b", "b", "c")
    pod, handle = by_default(world)
    columns = world.columns
    assert PodTopologySpread().prepare(pod, handle) is None
    # Three hostnames and three zones, one of them without a name; a node outside of zones is not judged by them.
    weight = math.log(5)
    raw = [round(count * weight + 2 + (zone * weight + 4)) for count, zone in ((1, 1), (2, 2))]
    raw.append(round(weight + 2))
    most, least = max(raw), min(raw)
    assert ranks(pod, handle, columns, [0, 1, 2]) == [100 * (most + least - each) // most for each in raw]
    explicit = [
        spread(HOSTNAME, skew=3, when="ScheduleAnyway"),
        spread(skew=5, when="ScheduleAnyway"),
    ]
    strict = waiting(world, *explicit).cls
    assert ranks(strict, handle, columns, [0, 1]) == ranks(pod, handle, columns, [0, 1])
    ranked = ranks(strict, handle, columns, [0, 1, 2])
    assert ranked is not None and ranked[2] == 0


def test_by_the_system_s_default_a_node_without_a_hostname_is_ranked_by_its_zone_alone() -> None:
    world = World(node("a", labels={HOSTNAME: "a", ZONE: "z1"}))
    unnamed = {"metadata": {"name": "b", "labels": {ZONE: "z2"}}, "status": {"allocatable": {"pods": "9"}}}
    world.ledger.set_node(node_info(msgspec.convert(unnamed, wire.Node)))
    place(world, "a", "b", "b")
    pod, handle = by_default(world)
    named, zone = (1 * math.log(4) + 2) + (1 * math.log(4) + 4), 2 * math.log(4) + 4
    most, least = round(named), round(zone)
    found = ranks(pod, handle, world.columns, [0, 1])
    assert found == [100 * least // most, 100 * most // most]


def test_without_defaults_and_without_siblings_nobody_is_spread() -> None:
    world = zones("z1")
    pod, handle = by_default(world)
    nothing = default_spread(args(defaultingType="List"))
    assert PodTopologySpread(nothing).prepare(pod, handle) is None
    assert PodTopologySpreadScore(nothing).prepare(pod, handle) is None
    alone = waiting(world, app="nobody").cls
    assert PodTopologySpreadScore().prepare(alone, handle) is None
