"""PodTopologySpread: its rules, what it keeps, pods without constraints of their own, and which events wake."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.events.hints import QueueingHint
from agent_scheduler.engine.framework.args import PodTopologySpreadArgs
from agent_scheduler.engine.framework.handle import Handle
from agent_scheduler.engine.plugins.pod_topology_spread import PodTopologySpread, PodTopologySpreadScore, default_spread
from agent_scheduler.engine.state.labelselector import label_selector
from agent_scheduler.engine.state.nodeinfo import node_info
from agent_scheduler.engine.state.podclass import PodClass
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.siblings import OwnerKind
from agent_scheduler.objects import wire
from tests.decisions import plain
from tests.decisions.clusters import Drawn
from tests.decisions.engine import Engine
from tests.decisions.plain import Obj, pod_topology_spread
from tests.support.engine import World, node, wakes
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
    st.tuples(st.sampled_from(("node", "no node", "pod", "pod", "no pod")), st.integers(0, 24)), min_size=1, max_size=16
)


@examples(100)
@given(drawn=clusters(), later=clusters(), steps=STEPS)
def test_a_state_that_is_kept_sees_every_change(drawn: Drawn, later: Drawn, steps: list[tuple[str, int]]) -> None:
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
    explicit = [spread(HOSTNAME, skew=3, when="ScheduleAnyway"), spread(skew=5, when="ScheduleAnyway")]
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


WORLD = World()
OTHER, OWN, NODE = range(3)


def hint(event: int, pod: PodInfo, old: object | None, new: object | None) -> bool:
    registered = FILTER.events_to_register()[event]
    assert registered.hint_fn is not None
    said = registered.hint_fn(pod, old, new) is QueueingHint.QUEUE
    # What the index finds is what the hint says; of the pod itself nothing is looked for.
    assert event == OWN or wakes(FILTER, pod, registered.event, old, new) is said
    return said


def info(*constraints: dict[str, Any], **more: Any) -> PodInfo:
    return waiting(WORLD, *constraints, **more)


def test_a_pod_that_is_counted_or_no_longer_is_wakes_those_that_count_it() -> None:
    pod = info(spread(), spread(app="soft", when="ScheduleAnyway"))
    web, db, soft = (info(app=app) for app in ("web", "db", "soft"))
    far = info(app="web", namespace="other")
    assert hint(OTHER, pod, None, web) and hint(OTHER, pod, web, None)
    assert hint(OTHER, pod, web, db) and hint(OTHER, pod, db, web)
    for old, new in ((None, db), (web, web), (db, None), (None, far), (far, None), (soft, None)):
        assert not hint(OTHER, pod, old, new)


def test_who_was_refused_by_default_is_woken_by_any_pod_of_its_namespace() -> None:
    pod = info()
    assert hint(OTHER, pod, None, info(app="x"))
    assert not hint(OTHER, pod, None, info(app="x", namespace="other"))
    assert hint(NODE, pod, None, node("n"))


def test_a_change_of_the_pod_itself_wakes_it_where_it_matters() -> None:
    tolerates = {"tolerations": [{"operator": "Exists"}]}

    def own(*constraints: dict[str, Any], labels: dict[str, str] | None = None, **change: Any) -> bool:
        """Whether a pod with these constraints is woken by a change of its app, its other labels, or its spec."""
        web = {"app": change.pop("app", "web"), **(labels or {})}
        old = WORLD.pod(uid="own", labels={"app": "web"}, topologySpreadConstraints=list(constraints))
        new = WORLD.pod(uid="own", labels=web, topologySpreadConstraints=list(constraints), **change)
        return hint(OWN, old, old, new)

    assert own(spread(), app="db")
    assert not own(spread(app="x"), app="db")
    assert own(spread(nodeTaintsPolicy="Honor"), **tolerates)
    assert not own(spread(), **tolerates)
    assert own(spread(app="x"), spread(HOSTNAME), app="db")
    assert own(spread(), spread(HOSTNAME, nodeTaintsPolicy="Honor"), **tolerates)
    assert own(spread(matchLabelKeys=["v"]), labels={"v": "2"})
    # Others count now, even where it is none of them itself.
    assert own(spread(app="x", matchLabelKeys=["v"]), labels={"v": "2"})
    pod = info(spread())
    assert not hint(OWN, pod, pod, info(spread(), app="db"))


def test_a_node_wakes_a_pod_where_the_count_by_domains_may_be_another() -> None:
    pod = info(spread(), spread(HOSTNAME))
    taints = [{"key": "k", "value": "", "effect": "NoSchedule"}]
    bare, z1, z2 = node("n"), node("n", labels={ZONE: "z1"}), node("n", labels={ZONE: "z2"})
    tainted = node("n", labels={ZONE: "z1"}, taints=taints)
    faster = node("n", labels={ZONE: "z1", "disk": "ssd"})
    for old, new in ((None, z1), (z1, None), (bare, z1), (z1, bare), (z1, z2)):
        assert hint(NODE, pod, old, new)
    for old, new in ((None, bare), (bare, None), (bare, bare), (z1, z1), (z1, tainted), (z1, faster)):
        assert not hint(NODE, pod, old, new)
    honors = info(spread(nodeTaintsPolicy="Honor"))
    assert hint(NODE, honors, z1, tainted) and hint(NODE, honors, tainted, z1)
    choosy = info(spread(), nodeSelector={"disk": "ssd"})
    assert hint(NODE, choosy, faster, z1) and not hint(NODE, choosy, z1, tainted)
