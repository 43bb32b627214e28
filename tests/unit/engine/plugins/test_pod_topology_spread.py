"""PodTopologySpread: its rules one by one, and against the plain reading of them on drawn clusters."""

from __future__ import annotations

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.state.nodeinfo import node_info
from agent_scheduler.objects import wire
from tests.decisions import plain
from tests.decisions.clusters import Drawn
from tests.decisions.engine import Engine
from tests.decisions.plain import Obj, pod_topology_spread
from tests.support.engine import World, node
from tests.support.examples import examples
from tests.support.terms import ZONE, spread

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


@examples(250)
@given(drawn=clusters(), data=st.data())
def test_drawn_clusters_are_decided_as_the_plain_reading_does(drawn: Drawn, data: st.DataObject) -> None:
    every = list(range(len(drawn.world.nodes)))
    feasible = data.draw(st.lists(st.sampled_from(every), min_size=1, unique=True).map(sorted))
    compare(Engine(drawn.world), drawn.pending, drawn.world, feasible)


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
