"""Binpack prefers the nodes that a pod fills most."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.plugins.binpack import PER_POINT, Binpack
from tests.support.engine import World, node

GPU = "nvidia.com/gpu"


def scores(world: World, plugin: Binpack, requests: dict[str, str]) -> list[float] | None:
    """In points."""
    found = world.scores(world.pod(requests=requests), plugin)
    return None if found is None else [score / PER_POINT for score in found]


def test_a_score_is_the_part_of_the_node_that_is_taken_with_the_pod() -> None:
    world = World(node("a", cpu="4", memory="8Gi"), node("b", cpu="4", memory="8Gi"))
    world.place("a", requests={"cpu": "2"})
    found = scores(world, Binpack({"cpu": 1, "memory": 1}), {"cpu": "1", "memory": "4Gi"})
    assert found == pytest.approx([100 * (3 / 4 + 1 / 2) / 2, 100 * (1 / 4 + 1 / 2) / 2])


def test_resources_count_by_their_weight() -> None:
    world = World(node("a", cpu="4", memory="8Gi"))
    found = scores(world, Binpack({"cpu": 3, "memory": 1}), {"cpu": "2", "memory": "8Gi"})
    assert found == pytest.approx([100 * (3 * 0.5 + 1) / 4])


def test_a_resource_without_a_weight_does_not_count() -> None:
    world = World(node("a", cpu="4"))
    assert scores(world, Binpack({"cpu": 1, "memory": 0}), {"cpu": "1", "memory": "1Gi"}) == [25.0]
    assert scores(world, Binpack({"cpu": 1}), {"memory": "1Gi"}) is None


def test_a_node_that_cannot_hold_the_pod_has_no_score() -> None:
    world = World(node("a", cpu="1"), node("b", cpu="4"))
    assert scores(world, Binpack({"cpu": 1}), {"cpu": "2"}) == [0.0, 50.0]


def test_a_resource_that_a_node_does_not_offer_counts_as_nothing_taken() -> None:
    world = World(node("a", cpu="4"), node("b", cpu="4", extended={GPU: "2"}))
    assert scores(world, Binpack({"cpu": 1, GPU: 1}), {"cpu": "4", GPU: "1"}) == [50.0, 75.0]
