"""Room that is kept for nominated pods: for whom, against whom, and what people are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.decide.decide import CandidateNodes, ClassViews, decide
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.preemption.nominated import Nominations
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.engine.queueing.nominator import Nominator
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.recount import contradictions
from tests.support.examples import examples
from tests.unit.engine.world import World, node, pod_json, read_pod

PROFILE = build_profile(ProfileSpec(scheduler_name="agent-scheduler", base="default-scheduler"))


class Cluster(World):
    def __init__(self, *nodes: NodeInfo) -> None:
        super().__init__(*nodes)
        self.nominator: Nominator[PodInfo] = Nominator()
        self.snapshot = Snapshot(self.ledger)
        self.views = ClassViews(PROFILE, self.snapshot)
        self.nominations = Nominations(self.nominator, self.ledger, self.snapshot, lambda _: PROFILE)

    def labelled(self, app: str, **spec: Any) -> PodInfo:
        body = pod_json(**spec)
        body["metadata"]["labels"] = {"app": app}
        return read_pod(body, self.classes)

    def nominate(self, node_name: str, **spec: Any) -> PodInfo:
        pod = self.pod(**spec)
        self.nominator.add(pod, node_name)
        return pod

    def decide(self, pod: PodInfo) -> CandidateNodes | Refusal:
        """As a worker does."""
        self.snapshot.refresh()
        view = self.views.of(self.snapshot.handle.class_of(pod))
        columns = self.snapshot.columns
        against = self.nominations.against(pod)
        taken = self.nominations.taken(pod, view, columns, against)
        decision = decide(view, columns, candidates=max(1, columns.size), taken=taken)
        if isinstance(decision, CandidateNodes):
            return decision
        return view.refusal(columns, self.nominations.refused(pod, view, columns, against))

    def fits_on(self, pod: PodInfo) -> set[str]:
        decision = self.decide(pod)
        return (
            {each.node_name for each in decision.candidates}
            if isinstance(decision, CandidateNodes)
            else set()
        )


def test_room_is_kept_for_pods_of_the_same_priority_and_above() -> None:
    world = Cluster(node("a", cpu="4"))
    world.nominate("a", requests={"cpu": "3"}, priority=10)
    wanted = {"cpu": "2"}
    assert world.fits_on(world.pod(requests=wanted, priority=9)) == set()
    assert world.fits_on(world.pod(requests=wanted, priority=10)) == set()
    assert world.fits_on(world.pod(requests=wanted, priority=11)) == {"a"}
    assert world.fits_on(world.pod(requests={"cpu": "1"}, priority=9)) == {"a"}


def test_a_nominated_pod_takes_its_own_room() -> None:
    world = Cluster(node("a", cpu="4"))
    pod = world.nominate("a", requests={"cpu": "3"}, priority=10)
    assert world.fits_on(pod) == {"a"}


def test_a_nominated_pod_that_is_placed_is_counted_once() -> None:
    world = Cluster(node("a", cpu="4"))
    pod = world.nominate("a", requests={"cpu": "2"}, priority=10)
    world.ledger.assume(pod, 0)
    assert world.fits_on(world.pod(requests={"cpu": "2"})) == {"a"}
    world.ledger.forget(pod.uid)
    assert world.fits_on(world.pod(requests={"cpu": "3"})) == set()


def test_a_nominated_pod_that_is_placed_is_displaced_by_nobody() -> None:
    """Its room is its own: it is about to be bound there."""
    world = Cluster(node("a", cpu="4"))
    pod = world.nominate("a", requests={"cpu": "2"}, priority=1)
    higher = world.pod(requests={"cpu": "2"}, priority=10)
    assert world.nominations.below("a", higher) == (pod,)
    world.ledger.assume(pod, 0)
    assert world.nominations.below("a", higher) == ()


def test_the_refusal_counts_what_is_missing_with_the_nominated_pod_in_place() -> None:
    world = Cluster(node("a", cpu="4", memory="4Gi"), node("b", cpu="1", memory="4Gi"))
    world.nominate("a", requests={"cpu": "1", "memory": "4Gi"}, priority=10)
    decision = world.decide(world.pod(requests={"cpu": "2", "memory": "1Gi"}))
    assert isinstance(decision, Refusal)
    assert decision.message == "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."
    assert decision.plugins == {"NodeResourcesFit"}


def test_nominations_to_nodes_that_are_gone_hold_nothing() -> None:
    world = Cluster(node("a"))
    world.nominate("gone", requests={"cpu": "4"}, priority=10)
    assert world.fits_on(world.pod(requests={"cpu": "4"})) == {"a"}


def test_what_a_nominated_pod_says_of_its_neighbours_holds_already() -> None:
    world = Cluster(node("a"), node("b"))
    world.nominate("a", priority=10, affinity=near("podAntiAffinity", "web"))
    assert world.fits_on(world.labelled("web")) == {"b"}
    assert world.fits_on(world.labelled("db")) == {"a", "b"}
    assert not world.snapshot.columns.terms


def test_a_neighbour_that_has_not_come_yet_is_not_counted_on() -> None:
    world = Cluster(node("a"), node("b"))
    world.nominator.add(world.labelled("db", priority=10), "a")
    assert world.fits_on(world.labelled("web", affinity=near("podAffinity", "db"))) == set()


def near(kind: str, app: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


SHAPES = st.tuples(
    st.sampled_from(["500m", "1", "2"]),
    st.sampled_from([0, 0, 80]),
    st.sampled_from(["a", "b"]),
    st.sampled_from([None, None, ("podAntiAffinity", "a"), ("podAntiAffinity", "b"), ("podAffinity", "a")]),
    st.sampled_from([0, 10]),
)
Shape = tuple[str, int, str, tuple[str, str] | None, int]


def make(classes: PodClasses, uid: str, shape: Shape) -> PodInfo:
    cpu, port, app, beside, priority = shape
    container: dict[str, Any] = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    if port:
        container["ports"] = [{"containerPort": 1, "hostPort": port, "protocol": "TCP"}]
    more = {"affinity": near(*beside)} if beside else {}
    body = pod_json(uid, containers=[container], priority=priority, **more)
    body["metadata"] |= {"uid": uid, "labels": {"app": app}}
    return read_pod(body, classes)


@examples(200)
@given(
    st.lists(st.tuples(SHAPES, st.integers(0, 2)), max_size=6),
    st.lists(st.tuples(SHAPES, st.integers(0, 2)), max_size=3),
    SHAPES,
)
def test_a_node_does_if_it_does_with_the_nominated_pods_placed_there_and_without(
    placed: Sequence[tuple[Shape, int]], nominated: Sequence[tuple[Shape, int]], pending: Shape
) -> None:
    names = ("a", "b", "c")

    def cluster(*, placing: str = "") -> tuple[Cluster, PodInfo]:
        """With the nominated pods of one node placed there, if one is named."""
        world = Cluster(*(node(name, cpu="3") for name in names))
        pod = make(world.classes, "pending", pending)
        for number, (shape, index) in enumerate(placed):
            world.ledger.set_pod(make(world.classes, f"p{number}", shape), names[index])
        for number, (shape, index) in enumerate(nominated):
            other = make(world.classes, f"n{number}", shape)
            if not placing:
                world.nominator.add(other, names[index])
            elif names[index] == placing and other.priority >= pod.priority:
                world.ledger.set_pod(other, placing)
        return world, pod

    world, pod = cluster()
    found = world.fits_on(pod)
    without = Cluster.fits_on(*cluster(placing="nobody"))
    assert found == {name for name in without if name in Cluster.fits_on(*cluster(placing=name))}
    assert contradictions(world.ledger) == []
