"""InterPodAffinity against the plain reading of its rules, on drawn clusters."""

from __future__ import annotations

from hypothesis import given

from agent_scheduler.engine.plugins.inter_pod_affinity import InterPodAffinity, InterPodAffinityScore
from tests.decisions.clusters import Drawn
from tests.decisions.engine import Engine
from tests.decisions.plain import inter_pod_affinity
from tests.support.engine import World, node
from tests.support.examples import examples
from tests.support.terms import beside, pod_term

from .spread_world import clusters, ranks, refusals


@examples(200)
@given(drawn=clusters("pods"))
def test_drawn_clusters_are_decided_as_the_plain_reading_does(drawn: Drawn) -> None:
    engine, pod, world = Engine(drawn.world), drawn.pending, drawn.world
    handle, columns = engine.snapshot.handle, engine.ledger.columns
    cls = handle.class_of(engine.read(pod, "asked"))
    expected = [inter_pod_affinity.refuse(pod, each, world) for each in world.nodes]
    assert refusals(cls, handle, columns, InterPodAffinity()) == expected
    scores = inter_pod_affinity.score(pod, world.nodes, world)
    found = ranks(cls, handle, columns, list(range(len(world.nodes))), InterPodAffinityScore())
    assert (found or [0] * len(world.nodes)) == list(
        (scores or dict.fromkeys(range(len(world.nodes)), 0)).values()
    )


def test_a_pod_with_one_kind_of_term_is_judged_by_it_alone() -> None:
    world = World(node("a"), node("b"))
    world.place("a", labels={"app": "web"})
    for kind, nodes in (("podAffinity", {"a"}), ("podAntiAffinity", {"b"})):
        assert world.feasible(world.pod(affinity=beside(kind, pod_term()))) == nodes
    assert world.feasible(world.pod(labels={"app": "web"})) == {"a", "b"}
    world.place("b", affinity=beside("podAntiAffinity", pod_term()))
    assert world.feasible(world.pod(labels={"app": "web"})) == {"a"}
