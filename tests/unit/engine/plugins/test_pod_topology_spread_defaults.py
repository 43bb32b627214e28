"""PodTopologySpread for pods that have no constraints of their own."""

from __future__ import annotations

import math
from typing import Any

import msgspec
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
from tests.decisions.clusters import Drawn
from tests.decisions.engine import Engine
from tests.support.engine import World, node
from tests.support.examples import examples
from tests.support.terms import HOSTNAME, ZONE, spread

from .spread_world import clusters, place, ranks, refusals, waiting, zones


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
