"""What each policy makes of a node."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.shards.settings import WarmupArgs

from .world import WARM, World, limit, rate, settings, shard

GPU = "nvidia.com/gpu"


def chosen(world: World) -> list[str]:
    return world.desired()["a"]


@pytest.mark.parametrize("bound", [each / 100 for each in range(101)])
def test_a_rate_that_is_its_bound_in_hundredths_is_inside_whatever_floats_make_of_it(bound: float) -> None:
    world = World(settings(shard("a", rate(bound, bound))))
    world.node("n", round(bound * 100))
    assert chosen(world) == ["n"]


def test_a_rate_counts_in_hundredths_rounded_half_up() -> None:
    world = World(settings(shard("a", rate(0, 0.6))))
    world.node("just-below", 0)
    world.node("half", 0)
    world.planner.set_pod("p1", "just-below", {"cpu": 60_499})
    world.planner.set_pod("p2", "half", {"cpu": 60_500})
    assert chosen(world) == ["just-below"]


def test_warmth_is_told_by_the_label_and_value_that_are_named() -> None:
    custom = WarmupArgs(warmup_label="example.com/warm", warmup_label_value="very")
    world = World(settings(shard("a", custom, limit(0, 1))))
    world.node("n1", labels={"example.com/warm": "a bit", **WARM})
    world.node("n2", labels={"example.com/warm": "very"})
    assert chosen(world) == ["n2"]
