"""How many nodes a shard gets: at most, at least, and of a budget."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.shards.policies import Limits
from agent_scheduler.engine.shards.settings import NodeLimitArgs

from .world import GIB, World, limit, rate, settings, shard


def many(world: World, count: int, used: int = 0, prefix: str = "n") -> None:
    for index in range(count):
        world.node(f"{prefix}{index:03}", used)


def test_a_limit_holds_over_the_whole_cluster() -> None:
    world = World(settings(shard("a", limit(0, 10)), shard("b")))
    many(world, 200)
    assert dict(world.plan().counts) == {"a": 10, "b": 190}


def test_a_limit_of_0_is_none() -> None:
    world = World(settings(shard("a", limit(0, 0))))
    many(world, 120)
    assert world.plan().counts == {"a": 120}


def test_a_limit_above_what_there_is_changes_nothing() -> None:
    world = World(settings(shard("a", rate(0, 0.5), limit(0, 10))))
    many(world, 3)
    many(world, 3, 90, "busy")
    assert world.desired() == {"a": ["n000", "n001", "n002"]}


def test_of_several_limits_the_closest_holds() -> None:
    world = World(settings(shard("a", limit(0, 7), limit(0, 5), limit(percent=30))))
    many(world, 10)
    assert world.plan().counts == {"a": 3}


@pytest.mark.parametrize(("nodes", "count"), [(1, 1), (3, 1), (4, 2), (10, 3), (11, 4)])
def test_a_percentage_is_rounded_up(nodes: int, count: int) -> None:
    world = World(settings(shard("a", limit(percent=30))))
    many(world, nodes)
    assert world.plan().counts == {"a": count}


@pytest.mark.parametrize("percent", [7, 14, 28, 29, 55, 56, 57, 58])
def test_a_percentage_that_comes_out_even_is_not_rounded_up(percent: int) -> None:
    world = World(settings(shard("a", limit(percent=percent))))
    many(world, 100)
    assert world.plan().counts == {"a": percent}


def test_a_percentage_is_of_nodes_that_can_be_given() -> None:
    world = World(settings(shard("a", limit(percent=50))))
    many(world, 4)
    world.node("n900", cordoned=True)
    world.node("n901", ready=False)
    assert world.plan().counts == {"a": 2}


def test_a_percentage_follows_the_size_of_the_cluster() -> None:
    world = World(settings(shard("a", limit(percent=50))))
    many(world, 4)
    world.carry_out()
    many(world, 8)
    assert world.carry_out().counts == {"a": 4}
    for index in range(6):
        world.planner.delete_node(f"n{index:03}")
    assert world.carry_out().counts == {"a": 1}


def test_a_budget_ends_a_shard_where_its_capacity_is_reached() -> None:
    world = World(settings(shard("a", limit(capacity={"cpu": "250"})), shard("b")))
    many(world, 4)
    assert world.desired() == {"a": ["n000", "n001"], "b": ["n002", "n003"]}


def test_a_budget_may_be_used_to_the_last() -> None:
    world = World(settings(shard("a", limit(capacity={"cpu": "300"}))))
    many(world, 4)
    assert world.plan().counts == {"a": 3}


def test_a_node_that_does_not_fit_a_budget_does_not_keep_out_those_that_do() -> None:
    world = World(settings(shard("a", limit(capacity={"cpu": "100"}))))
    world.node("n1", cores=60)
    world.node("n2", cores=50)
    world.node("n3", cores=30)
    world.node("n4", cores=20)
    world.node("n5", cores=10)
    assert world.desired() == {"a": ["n1", "n3", "n5"]}


def test_every_resource_of_a_budget_counts() -> None:
    world = World(settings(shard("a", limit(capacity={"cpu": "1000", "memory": "3"}))))
    for index in range(4):
        world.node(f"n{index}", memory=(0, 2))
    world.node("n9", memory=(0, 1))
    assert world.desired() == {"a": ["n0", "n9"]}


def test_a_budget_follows_what_nodes_offer() -> None:
    world = World(settings(shard("a", limit(capacity={"cpu": "200"}))))
    many(world, 3)
    assert world.carry_out().counts == {"a": 2}
    world.node("n000", cores=150)
    assert world.desired() == {"a": ["n000"]}
    world.node("n000", cores=1)
    assert world.desired() == {"a": ["n000", "n001"]}


def test_a_budget_of_millions_of_large_nodes_does_not_overflow() -> None:
    world = World(settings(shard("a", limit(capacity={"memory": "8Ei"}))))
    for index in range(3000):
        world.node(f"n{index:04}", memory=(0, 2**52 - 1))
    assert world.plan().counts == {"a": 2048}


def test_a_minimum_is_filled_from_nodes_that_no_shard_chose() -> None:
    world = World(settings(shard("a", rate(0, 0.3)), shard("b", rate(0.7, 1), limit(2))))
    world.nodes(n1=10, n2=50, n3=60, n4=40)
    assert world.desired() == {"a": ["n1"], "b": ["n2", "n3"]}
    assert world.plan().short == {}


def test_an_earlier_shard_leaves_what_the_minimum_of_a_later_one_needs() -> None:
    world = World(settings(shard("a", rate(0, 0.6)), shard("b", rate(0.7, 1), limit(2))))
    world.nodes(n1=10, n2=50, n3=60, n4=40)
    assert world.desired() == {"a": ["n2", "n3"], "b": ["n1", "n4"]}


def test_a_later_shard_leaves_what_the_minimum_of_an_earlier_one_needs() -> None:
    world = World(settings(shard("b", rate(0.7, 1), limit(2)), shard("a", rate(0, 0.6))))
    world.nodes(n1=10, n2=50, n3=60, n4=40)
    assert world.desired() == {"b": ["n1", "n4"], "a": ["n2", "n3"]}


def test_a_minimum_comes_before_the_shard_for_leftover_nodes() -> None:
    world = World(settings(shard("a", rate(0.9, 1)), shard("b", rate(0.7, 1), limit(1)), leftover="a"))
    world.nodes(n1=10, n2=50)
    assert world.desired() == {"a": ["n2"], "b": ["n1"]}


def test_where_there_are_too_few_nodes_the_earlier_minimum_is_filled_first() -> None:
    world = World(settings(shard("a", limit(2, 5)), shard("b", limit(3))))
    many(world, 3)
    plan = world.plan()
    assert dict(plan.counts) == {"a": 2, "b": 1}
    assert plan.short == {"b": 2}


def test_a_minimum_never_goes_beyond_a_limit() -> None:
    world = World(settings(shard("a", limit(5, percent=20)), shard("b")))
    many(world, 10)
    plan = world.plan()
    assert dict(plan.counts) == {"a": 2, "b": 8}
    assert plan.short == {"a": 3}


def test_nodes_that_fill_a_minimum_stay_and_are_not_passed_around() -> None:
    world = World(settings(shard("a", rate(0, 0.6)), shard("b", rate(0.7, 1), limit(2))))
    world.nodes(n1=10, n2=50, n3=60, n4=40)
    world.carry_out()
    world.use("n2", 35)
    world.use("n1", 12)
    assert not world.plan().changed


def test_a_minimum_that_is_no_longer_short_gives_back_what_filled_it() -> None:
    world = World(settings(shard("a", rate(0, 0.6)), shard("b", rate(0.7, 1), limit(1)), gain=0))
    world.nodes(n1=10, n2=50)
    assert world.carry_out().desired["b"] == ("n1",)
    world.use("n2", 90)
    assert world.desired() == {"a": ["n1"], "b": ["n2"]}


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


def test_volcanos_default_gives_an_idle_cluster_to_both_schedulers() -> None:
    world = World(
        settings(shard("volcano", rate(0, 0.6), limit(2, 100)), shard("agent", rate(0.7, 1), limit(2, 100)))
    )
    many(world, 5)
    assert dict(world.plan().counts) == {"volcano": 3, "agent": 2}


def test_of_several_limits_the_closest_counts_whichever_comes_first() -> None:
    one = NodeLimitArgs(min_nodes=2, max_nodes=9, max_percent=50, max_capacity={"cpu": "4"})
    other = NodeLimitArgs(
        min_nodes=1, max_nodes=5, max_percent=80, max_capacity={"cpu": "8", "memory": "1Gi"}
    )
    for first, second in ((one, other), (other, one)):
        limits = Limits().and_also(first).and_also(second)
        assert (limits.least, limits.most, limits.percent) == (2, 5, 50)
        assert limits.budget == {"cpu": 4000, "memory": GIB}
    assert Limits().and_also(NodeLimitArgs()) == Limits()


def test_a_budget_that_a_shard_has_more_of_again_goes_on_to_what_is_left_over() -> None:
    """Though none of what is left over has changed."""
    world = World(settings(shard("a", rate(0.5, 1), limit(capacity={"cpu": "200"})), leftover="a"))
    world.nodes(n1=80, n2=80, n3=0)
    assert world.desired() == {"a": ["n1", "n2"]}
    world.planner.delete_node("n2")
    assert world.desired() == {"a": ["n1", "n3"]}
