"""InterPodAffinity against the plain reading, and which events wake a pod that it refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.plugins.inter_pod_affinity import InterPodAffinity, InterPodAffinityScore
from agent_scheduler.engine.state.namespaces import NamespaceInfo
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.decisions.clusters import Drawn
from tests.decisions.engine import Engine
from tests.decisions.plain import inter_pod_affinity
from tests.support.engine import World, node, wakes
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
    assert (found or [0] * len(world.nodes)) == list((scores or dict.fromkeys(range(len(world.nodes)), 0)).values())


def test_a_pod_with_one_kind_of_term_is_judged_by_it_alone() -> None:
    world = World(node("a"), node("b"))
    world.place("a", labels={"app": "web"})
    for kind, nodes in (("podAffinity", {"a"}), ("podAntiAffinity", {"b"})):
        assert world.feasible(world.pod(affinity=beside(kind, pod_term()))) == nodes
    assert world.feasible(world.pod(labels={"app": "web"})) == {"a", "b"}
    world.place("b", affinity=beside("podAntiAffinity", pod_term()))
    assert world.feasible(world.pod(labels={"app": "web"})) == {"a"}


WORLD = World()


def to_db(key: str = "zone", **more: Any) -> dict[str, Any]:
    return pod_term("db", key, **more)


TEAM_A = {"namespaceSelector": {"matchLabels": {"team": "a"}}}


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize(
    ("event", "before", "after", "expected"),
    [
        (ev.NAMESPACE_UPDATE, {}, {"team": "a"}, True),
        (ev.NAMESPACE_UPDATE, {"team": "a"}, {"team": "b"}, True),
        (ev.NAMESPACE_UPDATE, {"team": "a"}, {"team": "a", "x": "y"}, False),
        (ev.NAMESPACE_ADD, None, {"team": "a"}, True),
        (ev.NAMESPACE_ADD, None, {"team": "b"}, False),
        (ev.NAMESPACE_DELETE, {"team": "a"}, None, True),
        (ev.NAMESPACE_DELETE, {"team": "b"}, None, False),
    ],
)
def test_a_namespace_that_a_term_speaks_of_now_or_no_more_wakes(
    kind: str, event: ClusterEvent, before: Any, after: Any, expected: bool
) -> None:
    pod = WORLD.pod(affinity=beside(kind, to_db(**TEAM_A)))
    old, new = (None if labels is None else NamespaceInfo("elsewhere", labels) for labels in (before, after))
    assert wakes(InterPodAffinity(), pod, event, old, new) is expected


@pytest.mark.parametrize(
    ("pod", "name", "expected"),
    [
        # Terms of others may have refused it by the labels of its own namespace.
        (WORLD.pod(), "default", True),
        (WORLD.pod(namespace="other"), "default", False),
        # A to_db that names its namespaces asks for no labels.
        (WORLD.pod(affinity=beside("podAffinity", to_db(namespaces=["elsewhere"]))), "elsewhere", False),
    ],
)
def test_a_namespace_wakes_whom_its_labels_may_have_refused(pod: PodInfo, name: str, expected: bool) -> None:
    old, new = NamespaceInfo(name, {}), NamespaceInfo(name, {"team": "a"})
    assert wakes(InterPodAffinity(), pod, ev.NAMESPACE_UPDATE, old, new) is expected


def test_anti_affinity_that_is_made_of_labels_ends_with_them() -> None:
    """With matchLabelKeys a pod that runs keeps others away by its own labels."""
    pod = WORLD.pod(labels={"app": "db", "tier": "gold"})
    affinity = beside("podAntiAffinity", to_db(matchLabelKeys=["tier"]))
    gold, iron = (WORLD.pod(labels={"tier": tier}, affinity=affinity, nodeName="n") for tier in ("gold", "iron"))
    event = ClusterEvent(Resource.ASSIGNED_POD, ActionType.UPDATE_POD_LABEL)
    assert wakes(InterPodAffinity(), pod, event, gold, iron)
    assert not wakes(InterPodAffinity(), pod, event, iron, gold)


@pytest.mark.parametrize(("labels", "expected"), [({"app": "db"}, True), ({"app": "web"}, False)])
def test_the_end_of_whom_affinity_wants_wakes_as_its_coming_does(labels: dict[str, str], expected: bool) -> None:
    """A pod that wants its like may go anywhere once there is none."""
    pod = WORLD.pod(labels={"app": "db"}, affinity=beside("podAffinity", to_db()))
    other = WORLD.pod(labels=labels, nodeName="n")
    assert wakes(InterPodAffinity(), pod, ev.ASSIGNED_POD_ADD, None, other) is expected
    assert wakes(InterPodAffinity(), pod, ev.ASSIGNED_POD_DELETE, other, None) is expected


WANTS_AND_AVOIDS = {**beside("podAffinity", to_db("rack")), **beside("podAntiAffinity", to_db())}


@pytest.mark.parametrize(
    ("affinity", "before", "after", "expected"),
    [
        # The pod is kept from the zone of the changed node, which has no rack, and will never go there itself.
        (WANTS_AND_AVOIDS, {"zone": "a"}, {"zone": "b"}, True),
        (WANTS_AND_AVOIDS, {"zone": "a"}, {}, True),
        (WANTS_AND_AVOIDS, {}, {"rack": "r"}, True),
        (WANTS_AND_AVOIDS, {"zone": "a"}, {"zone": "a", "row": "7"}, False),
        (WANTS_AND_AVOIDS, None, {"rack": "r"}, True),
        (WANTS_AND_AVOIDS, None, {"zone": "a"}, False),
        # Any new node does for a pod that only avoids others: in a domain of its own, or in none, there is nobody.
        (beside("podAntiAffinity", to_db()), None, {}, True),
        (beside("podAntiAffinity", to_db()), None, {"zone": "a"}, True),
        # The pod that is wanted runs there, and with the node it comes into a zone that has racks elsewhere.
        (beside("podAffinity", to_db(), to_db("rack")), {"zone": "a"}, {"zone": "b"}, True),
    ],
)
def test_a_node_that_moves_wakes_by_each_key_of_each_term(
    affinity: Any, before: dict[str, str] | None, after: dict[str, str], expected: bool
) -> None:
    old, new = (None if labels is None else node("n", labels=labels) for labels in (before, after))
    event = ev.NODE_ADD if old is None else ev.NODE_UPDATE_LABEL
    assert wakes(InterPodAffinity(), WORLD.pod(affinity=affinity), event, old, new) is expected
