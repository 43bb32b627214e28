"""Nodes that pods are nominated to, asked about at once: as if each were changed and asked by itself."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from agent_scheduler.engine.preemption.evaluator import PostFilterResult
from agent_scheduler.engine.preemption.nominated import NO_NOMINATED, NominatedPods, Nominations
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.engine import SPREAD, World, node
from tests.support.terms import ZONE, beside, pod_term


class Drawn:
    """A cluster of small nodes, filled and with nominations; what `pod` draws waits in it."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        names = [f"n{number}" for number in range(rng.randint(1, 8))]
        self.world = world = World(
            *(
                node(
                    name,
                    cpu=str(rng.randint(1, 4)),
                    pods=str(rng.randint(3, 6)),
                    labels={ZONE: rng.choice("ab")},
                    taints=[{"key": "k", "effect": "NoSchedule"}] if rng.random() < 0.2 else [],
                )
                for name in names
            ),
            profile=SPREAD,
        )
        for number in range(rng.randint(0, 20)):
            name = rng.choice(names)
            world.run(f"r{number}", name, cpu=rng.choice(["500m", "1"]), priority=rng.randint(0, 3))
        for _ in range(rng.randint(1, 10)):
            world.nominator.add(self.pod(), rng.choice(names))

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


def _one_by_one(
    filters: object, against: Mapping[int, NominatedPods]
) -> tuple[Mapping[int, NominatedPods], ...]:
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
        chosen += sum(
            isinstance(said[-1], PostFilterResult) and said[-1].candidate is not None for said in at_once
        )
    assert sum(splits) > 300 and chosen > 25
