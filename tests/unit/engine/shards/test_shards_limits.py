"""How many nodes a shard gets: at most, at least, and of a budget."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.shards.policies import NodeLimits
from agent_scheduler.engine.shards.settings import NodeLimitArgs

from .world import GIB, World, limit, rate, settings, shard


@pytest.mark.parametrize("percent", [7, 14, 28, 29, 55, 56, 57, 58])
def test_a_percentage_that_comes_out_even_is_not_rounded_up(percent: int) -> None:
    world = World(settings(shard("a", limit(percent=percent))))
    world.nodes(**{f"n{index}": 0 for index in range(100)})
    assert world.plan().counts == {"a": percent}


def test_a_budget_of_millions_of_large_nodes_does_not_overflow() -> None:
    world = World(settings(shard("a", limit(capacity={"memory": "8Ei"}))))
    for index in range(3000):
        world.node(f"n{index:04}", memory=(0, 2**52 - 1))
    assert world.plan().counts == {"a": 2048}


def test_a_node_that_was_cordoned_while_a_minimum_was_full_does_not_fill_it_later() -> None:
    world = World(settings(shard("a", rate(0, 0.3)), shard("b", rate(0.7, 1), limit(1))))
    world.nodes(n1=50, n2=60, n3=80)
    world.use("n3", 65)
    assert world.desired()["b"] == ["n1"]
    world.use("n3", 80)
    assert world.desired()["b"] == ["n3"]
    world.node("n1", 50, cordoned=True)
    world.plan()
    world.use("n3", 65)
    assert world.desired()["b"] == ["n2"]


def test_of_several_limits_the_closest_counts_whichever_comes_first() -> None:
    one = NodeLimitArgs(min_nodes=2, max_nodes=9, max_percent=50, max_capacity={"cpu": "4"})
    other = NodeLimitArgs(min_nodes=1, max_nodes=5, max_percent=80, max_capacity={"cpu": "8", "memory": "1Gi"})
    for first, second in ((one, other), (other, one)):
        limits = NodeLimits().and_also(first).and_also(second)
        assert (limits.least, limits.most, limits.percent) == (2, 5, 50)
        assert limits.budget == {"cpu": 4000, "memory": GIB}
    assert NodeLimits().and_also(NodeLimitArgs()) == NodeLimits()


def test_a_budget_that_a_shard_has_more_of_again_goes_on_to_what_is_left_over() -> None:
    """Though none of what is left over has changed."""
    world = World(settings(shard("a", rate(0.5, 1), limit(capacity={"cpu": "200"})), leftover="a"))
    world.nodes(n1=80, n2=80, n3=0)
    assert world.desired() == {"a": ["n1", "n2"]}
    world.planner.delete_node("n2")
    assert world.desired() == {"a": ["n1", "n3"]}
