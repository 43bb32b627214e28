"""What each policy makes of a node."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.shards.settings import WarmupArgs

from .world import GIB, WARM, World, limit, rate, settings, shard, warm, weighted

GPU = "nvidia.com/gpu"


def chosen(world: World) -> list[str]:
    return world.desired()["a"]


@pytest.mark.parametrize(
    ("used", "inside"),
    [(19, False), (20, True), (40, True), (60, True), (61, False), (0, False), (100, False)],
)
def test_both_ends_of_a_range_are_inside(used: int, inside: bool) -> None:
    world = World(settings(shard("a", rate(0.2, 0.6))))
    world.node("n", used)
    assert chosen(world) == (["n"] if inside else [])


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


def test_a_node_with_more_requested_than_there_is_is_full() -> None:
    world = World(settings(shard("a", rate(1.0, 1.0))))
    world.node("n", 250)
    assert chosen(world) == ["n"]


def test_the_rate_is_of_what_is_allocatable() -> None:
    world = World(settings(shard("a", rate(0.5, 0.5))))
    world.node("n", 10, cores=20)
    assert chosen(world) == ["n"]


def test_a_node_of_which_nothing_is_known_is_in_no_range() -> None:
    world = World(settings(shard("a", rate(0, 1))))
    world.node("n", cores=0)
    assert chosen(world) == []
    assert world.plan().unassigned == {"n": "outside of the ranges of all shards"}


def test_pods_on_one_node_add_up_and_go() -> None:
    world = World(settings(shard("a", rate(0.5, 0.5))))
    world.node("n", 20)
    world.planner.set_pod("second", "n", {"cpu": 30_000})
    assert chosen(world) == ["n"]
    world.planner.delete_pod("second")
    assert chosen(world) == []


def test_a_pod_that_asks_for_something_else_counts_as_it_is_now() -> None:
    world = World(settings(shard("a", rate(0.5, 0.5))))
    world.node("n", 20)
    world.use("n", 50)
    assert chosen(world) == ["n"]


def test_a_pod_on_another_node_than_before_counts_there_alone() -> None:
    world = World(settings(shard("a", rate(0.5, 0.5), limit(0, 1))))
    world.nodes(n1=0, n2=0)
    world.planner.set_pod("p", "n1", {"cpu": 50_000})
    assert chosen(world) == ["n1"]
    world.planner.set_pod("p", "n2", {"cpu": 50_000})
    assert chosen(world) == ["n2"]


def test_a_pod_counts_that_was_known_before_its_node() -> None:
    world = World(settings(shard("a", rate(0.5, 0.5))))
    world.planner.set_pod("p", "n", {"cpu": 50_000})
    assert world.desired() == {"a": []}
    world.node("n", 0)
    assert chosen(world) == ["n"]


def test_pods_of_a_node_that_comes_back_count_again() -> None:
    world = World(settings(shard("a", rate(0.5, 0.5))))
    world.node("n", 50)
    world.plan()
    world.planner.delete_node("n")
    assert chosen(world) == []
    world.node("other", 50)
    world.node("n", 50)
    assert chosen(world) == ["n", "other"]


def test_the_busiest_of_a_range_comes_first() -> None:
    world = World(settings(shard("a", rate(0.2, 0.6), limit(0, 2))))
    world.nodes(n1=20, n2=60, n3=40)
    assert chosen(world) == ["n2", "n3"]


def test_everything_is_equal_in_a_range_that_is_one_point() -> None:
    world = World(settings(shard("a", rate(0.5, 0.5), limit(0, 2))))
    world.nodes(n3=50, n1=50, n2=50)
    assert chosen(world) == ["n1", "n2"]


def test_memory_and_extended_resources_are_judged_like_cpu() -> None:
    world = World(settings(shard("a", rate(memory=(0.5, 1.0))), shard("b", rate(**{GPU: (0.5, 1.0)}))))
    world.node("n1", memory=(6 * GIB, 8 * GIB), **{GPU: (0, 8)})
    world.node("n2", memory=(GIB, 8 * GIB), **{GPU: (4, 8)})
    world.node("n3", memory=(GIB, 8 * GIB), **{GPU: (3, 8)})
    assert world.desired() == {"a": ["n1"], "b": ["n2"]}


def test_every_resource_that_is_named_must_be_in_its_range() -> None:
    world = World(settings(shard("a", rate(0, 0.5, memory=(0, 0.5)))))
    world.node("n1", 40, memory=(6, 10))
    world.node("n2", 60, memory=(4, 10))
    world.node("n3", 40, memory=(4, 10))
    assert chosen(world) == ["n3"]


def test_a_resource_that_a_node_has_none_of_is_not_judged() -> None:
    world = World(settings(shard("a", rate(0.5, 1.0, **{GPU: (0.5, 1.0)}))))
    world.node("plain", 50)
    world.node("idle-gpus", 50, **{GPU: (0, 8)})
    assert chosen(world) == ["plain"]


def test_a_node_that_has_none_of_all_that_is_named_is_refused() -> None:
    world = World(settings(shard("a", rate(**{GPU: (0, 1)}))))
    world.node("plain", 50)
    assert chosen(world) == []


def test_the_score_of_several_resources_is_the_mean_of_those_that_are_judged() -> None:
    world = World(settings(shard("a", rate(0, 1, memory=(0, 1)), limit(0, 2))))
    world.node("n1", 40, memory=(4, 10))
    world.node("n2", 90, memory=(1, 10))
    world.node("n3", 45)
    assert chosen(world) == ["n2", "n3"]


def test_warm_nodes_come_first() -> None:
    world = World(settings(shard("a", warm(), limit(0, 2))))
    world.nodes(n1=0, n2=0, n3=0)
    world.node("n3", labels=WARM)
    world.node("n2", labels={"node.volcano.sh/warmup": "false"})
    assert chosen(world) == ["n1", "n3"]


def test_warmth_is_told_by_the_label_and_value_that_are_named() -> None:
    custom = WarmupArgs(warmup_label="example.com/warm", warmup_label_value="very")
    world = World(settings(shard("a", custom, limit(0, 1))))
    world.node("n1", labels={"example.com/warm": "a bit", **WARM})
    world.node("n2", labels={"example.com/warm": "very"})
    assert chosen(world) == ["n2"]


def test_a_label_that_changes_changes_the_plan() -> None:
    world = World(settings(shard("a", warm(), limit(0, 1))))
    world.nodes(n1=0, n2=0)
    assert chosen(world) == ["n1"]
    world.node("n2", labels=WARM)
    assert chosen(world) == ["n2"]


def test_scores_count_by_their_weights() -> None:
    def first(of_rate: float, of_warmth: float) -> list[str]:
        world = World(
            settings(shard("a", weighted(of_rate, rate(0, 1)), weighted(of_warmth, warm()), limit(0, 1)))
        )
        world.node("warm", 20, labels=WARM)
        world.node("busy", 80)
        return chosen(world)

    assert first(1, 1) == ["warm"]
    assert first(2, 1) == ["busy"]


def test_a_policy_of_weight_0_filters_but_does_not_rank() -> None:
    world = World(settings(shard("a", weighted(0, rate(0.2, 1)), limit(0, 1))))
    world.nodes(n1=10, n2=30, n3=90)
    assert chosen(world) == ["n2"]


def test_a_filter_more_means_nodes_that_pass_both() -> None:
    world = World(settings(shard("a", rate(0.2, 1), rate(0, 0.6))))
    world.nodes(n1=10, n2=40, n3=90)
    assert chosen(world) == ["n2"]


def test_a_shard_without_filters_takes_any_node() -> None:
    world = World(settings(shard("a")))
    world.nodes(n1=0, n2=100)
    world.node("n3", cores=0)
    assert chosen(world) == ["n1", "n2", "n3"]
