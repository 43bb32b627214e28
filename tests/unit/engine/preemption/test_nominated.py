"""Room that is kept for nominated pods: for whom, against whom, and what people are told."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.preemption.evaluator import PostFilterResult
from agent_scheduler.engine.preemption.nominated import NO_NOMINATED, NominatedPods, Nominations
from agent_scheduler.engine.recount import contradictions
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.engine import SPREAD, World, node
from tests.support.examples import examples
from tests.support.terms import ZONE, beside, pod_term

cluster = partial(World, profile=SPREAD)


def nominate(world: World, node_name: str, **more: Any) -> PodInfo:
    pod = world.pod(**more)
    world.nominator.add(pod, node_name)
    return pod


@pytest.mark.promise("S16")
def test_room_is_kept_for_pods_of_the_same_priority_and_above() -> None:
    world = cluster(node("a", cpu="4"))
    own = nominate(world, "a", requests={"cpu": "3"}, priority=10)
    nominate(world, "gone", requests={"cpu": "4"}, priority=20)
    wanted = {"cpu": "2"}
    assert world.feasible(own) == {"a"}, "it takes its own room"
    assert world.feasible(world.pod(requests=wanted, priority=9)) == set()
    assert world.feasible(world.pod(requests=wanted, priority=10)) == set()
    assert world.feasible(world.pod(requests=wanted, priority=11)) == {"a"}
    assert world.feasible(world.pod(requests={"cpu": "1"}, priority=9)) == {"a"}


def test_a_nominated_pod_that_is_placed_is_counted_once() -> None:
    world = cluster(node("a", cpu="4"))
    pod = nominate(world, "a", requests={"cpu": "2"}, priority=10)
    world.ledger.assume(pod, 0)
    assert world.feasible(world.pod(requests={"cpu": "2"})) == {"a"}
    world.ledger.forget(pod.uid)
    assert world.feasible(world.pod(requests={"cpu": "3"})) == set()


def test_a_nominated_pod_that_is_placed_is_displaced_by_nobody() -> None:
    """Its room is its own: it is about to be bound there."""
    world = cluster(node("a", cpu="4"))
    pod = nominate(world, "a", requests={"cpu": "2"}, priority=1)
    higher = world.pod(requests={"cpu": "2"}, priority=10)
    assert world.nominations.below("a", higher) == (pod,)
    world.ledger.assume(pod, 0)
    assert world.nominations.below("a", higher) == ()


def test_the_refusal_counts_what_is_missing_with_the_nominated_pod_in_place() -> None:
    world = cluster(node("a", cpu="4", memory="4Gi"), node("b", cpu="1", memory="4Gi"))
    nominate(world, "a", requests={"cpu": "1", "memory": "4Gi"}, priority=10)
    decision = world.refusal(world.pod(requests={"cpu": "2", "memory": "1Gi"}))
    assert decision.message == "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."
    assert decision.plugins == {"NodeResourcesFit"}


@pytest.mark.parametrize("wants", [{}, beside("podAffinity", pod_term("db"), weight=10)])
def test_what_a_nominated_pod_says_of_its_neighbours_holds_already(wants: Any) -> None:
    """Also of one that wants some of them."""
    world = cluster(node("a"), node("b"))
    nominate(world, "a", priority=10, affinity=wants | beside("podAntiAffinity", pod_term("web")))
    assert world.feasible(world.pod(labels={"app": "web"})) == {"b"}
    assert world.feasible(world.pod(labels={"app": "db"})) == {"a", "b"}
    assert wants or not world.snapshot.columns.terms


def test_each_node_with_nominated_pods_is_refused_for_what_it_lacks_with_them_in_place() -> None:
    """On one the neighbour that is wanted is yet to come; on the next it runs, and its room is kept for another."""
    world = cluster(node("a"), node("b", cpu="2"), node("c", cpu="1"))
    nominate(world, "a", priority=10, labels={"app": "db"})
    for name in ("b", "c"):
        world.place(name, labels={"app": "db"})
        nominate(world, name, priority=10, requests={"cpu": "1"})
    pod = world.pod(requests={"cpu": "2"}, affinity=beside("podAffinity", pod_term("db")))
    assert world.message(pod) == (
        "0/3 nodes are available: 1 node(s) didn't match pod affinity rules, 2 Insufficient cpu."
    )


def test_of_the_pods_nominated_to_nodes_a_session_counts_those_of_other_schedulers() -> None:
    world = cluster(node("a"), node("b"))
    own, other, third = (
        nominate(world, name, schedulerName=scheduler)
        for name, scheduler in (("a", "batch"), ("a", "agent-scheduler"), ("b", "agent-scheduler"))
    )
    assert world.nominations.beside("batch") == {"a": (other,), "b": (third,)}
    assert world.nominations.beside("agent-scheduler") == {"a": (own,)}
    world.ledger.assume(other, 0)
    assert world.nominations.beside("batch") == {"b": (third,)}


SHAPES = st.tuples(
    st.sampled_from(["500m", "1", "2"]),
    st.sampled_from([0, 0, 80]),
    st.sampled_from(["a", "b"]),
    st.sampled_from([None, None, ("podAntiAffinity", "a"), ("podAntiAffinity", "b"), ("podAffinity", "a")]),
    st.sampled_from([0, 10]),
)
Shape = tuple[str, int, str, tuple[str, str] | None, int]


def make(world: World, uid: str, shape: Shape) -> PodInfo:
    cpu, port, app, near, priority = shape
    more = {"affinity": beside(near[0], pod_term(near[1]))} if near else {}
    about = {"requests": {"cpu": cpu}, "ports": [port] if port else [], "priority": priority}
    return world.pod(uid, uid=uid, labels={"app": app}, **about, **more)


@pytest.mark.promise("S16")
@examples(120)
@given(
    st.lists(st.tuples(SHAPES, st.integers(0, 2)), max_size=6),
    st.lists(st.tuples(SHAPES, st.integers(0, 2)), max_size=3),
    SHAPES,
)
def test_a_node_does_if_it_does_with_the_nominated_pods_placed_there_and_without(
    placed: Sequence[tuple[Shape, int]], nominated: Sequence[tuple[Shape, int]], pending: Shape
) -> None:
    names = ("a", "b", "c")

    def drawn(*, placing: str = "") -> tuple[World, PodInfo]:
        """With the nominated pods of one node placed there, if one is named."""
        world = cluster(*(node(name, cpu="3") for name in names))
        pod = make(world, "pending", pending)
        for number, (shape, index) in enumerate(placed):
            world.ledger.set_pod(make(world, f"p{number}", shape), names[index])
        for number, (shape, index) in enumerate(nominated):
            other = make(world, f"n{number}", shape)
            if not placing:
                world.nominator.add(other, names[index])
            elif names[index] == placing and other.priority >= pod.priority:
                world.ledger.set_pod(other, placing)
        return world, pod

    world, pod = drawn()
    found = world.feasible(pod)
    without = World.feasible(*drawn(placing="nobody"))
    assert found == {name for name in without if name in World.feasible(*drawn(placing=name))}
    assert contradictions(world.ledger) == []


class Drawn:
    """A cluster of small nodes, filled and with nominations; what `pod` draws waits in it."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        names = [f"n{number}" for number in range(rng.randint(1, 8))]
        self.world = world = cluster(*map(self._node, names))
        for number in range(rng.randint(0, 20)):
            name = rng.choice(names)
            world.run(f"r{number}", name, cpu=rng.choice(["500m", "1"]), priority=rng.randint(0, 3))
        for _ in range(rng.randint(1, 10)):
            world.nominator.add(self.pod(), rng.choice(names))

    def _node(self, name: str) -> NodeInfo:
        rng = self.rng
        size: Any = {"cpu": str(rng.randint(1, 4)), "pods": str(rng.randint(3, 6))}
        labels, tainted = {ZONE: rng.choice("ab")}, rng.random() < 0.2
        return node(name, labels=labels, taints=[{"key": "k", "effect": "NoSchedule"}] if tainted else [], **size)

    def pod(self) -> PodInfo:
        rng = self.rng
        cpu = rng.choice(["250m", "1", "1500m", "2", "3"])
        near = beside("podAntiAffinity", pod_term(rng.choice("xy"), ZONE)) if rng.random() < 0.15 else {}
        more = {"affinity": near} if near else {}
        ports = [80] if rng.random() < 0.15 else []
        priority, labels = rng.randint(0, 4), {"app": rng.choice("xyz")}
        return self.world.pod(requests={"cpu": cpu}, ports=ports, priority=priority, labels=labels, **more)

    def said(self, pod: PodInfo) -> tuple[object, ...]:
        """All that nominations lead to for one pod."""
        world = self.world
        view = world.view(pod)
        columns, nominations = world.snapshot.columns, world.nominations
        against = nominations.against(pod)
        before = columns.usage.copy()
        taken = nominations.taken(pod, view, columns, against)
        rows = set(view.feasible_rows(columns).tolist()) - set(taken)
        found: tuple[object, ...] = (taken, rows)
        if not rows:
            refused = nominations.refused(pod, view, columns, against)
            found += (dict(refused.counts), refused.plugins, refused.curable.tolist(), world.preempt(pod))
        assert (columns.usage == before).all(), "what is taken is not what it was"
        return found


def _one_by_one(filters: object, against: Mapping[int, NominatedPods]) -> tuple[Mapping[int, NominatedPods], ...]:
    return NO_NOMINATED, against


@pytest.fixture
def splits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many rows were asked about at once, each time."""
    found: list[int] = []
    real = Nominations.split

    def split(filters: Any, against: Any) -> Any:
        room, apart = real(filters, against)
        found.append(len(room))
        return room, apart

    monkeypatch.setattr(Nominations, "split", staticmethod(split))
    yield found


@pytest.mark.parametrize(
    "first", [0, pytest.param(100, marks=pytest.mark.wide), pytest.param(200, marks=pytest.mark.wide)]
)
def test_asked_at_once_or_one_by_one_the_same_is_said(
    splits: list[int], monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    chosen = 0
    for seed in range(first, first + 100):
        drawn = Drawn(seed)
        pods = [drawn.pod() for _ in range(4)]
        at_once = [drawn.said(pod) for pod in pods]
        with monkeypatch.context() as patch:
            patch.setattr(Nominations, "split", staticmethod(_one_by_one))
            one_by_one = [drawn.said(pod) for pod in pods]
        assert at_once == one_by_one, f"seed {seed}"
        chosen += sum(isinstance(said[-1], PostFilterResult) and said[-1].candidate is not None for said in at_once)
    assert sum(splits) > 300 and chosen > 25
