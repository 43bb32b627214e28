"""Which shard a node is planned for, when it moves, and how that is told."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from agent_scheduler.engine.shards.node_columns import NodeFacts, node_facts
from agent_scheduler.engine.shards.settings import PlanSettings, SettingsError, Treatment
from agent_scheduler.objects import wire

from .world import WARM, World, limit, rate, settings, shard

LOW_HIGH = (shard("low", rate(0, 0.6)), shard("high", rate(0.7, 1)))


def treating(*, cordoned: Treatment = "exclude", not_ready: Treatment = "exclude") -> PlanSettings:
    return PlanSettings(
        shards=(shard("a", limit(0, 2)), shard("b")), cordoned_nodes=cordoned, not_ready_nodes=not_ready
    )


def test_names_that_come_between_others_in_any_number_are_still_in_their_order() -> None:
    world = World(settings(shard("a", limit(0, 3)), shard("b")))
    world.nodes(a=0, z=0)
    for index in range(400):
        world.node(f"m{index:04}")
        world.node(f"b{999 - index:04}")
        world.plan()
    assert world.desired()["a"] == ["a", "b0600", "b0601"]
    assert list(world.plan().desired["b"]) == sorted(world.plan().desired["b"])


def test_leftover_nodes_respect_the_limit_of_their_shard() -> None:
    world = World(settings(shard("a", rate(0.9, 1), limit(0, 2)), leftover="a"))
    world.nodes(n1=10, n2=20, n3=95)
    assert world.desired() == {"a": ["n1", "n3"]}
    assert world.plan().unassigned == {"n2": "outside of the ranges of all shards"}


def test_a_node_takes_anothers_place_only_for_more_than_the_gain() -> None:
    world = World(settings(shard("a", rate(0, 1), limit(0, 1)), shard("b"), gain=0.1))
    world.nodes(n1=50, n2=60)
    world.are_in(a=["n1"], b=["n2"])
    assert not world.plan().changed
    world.use("n2", 61)
    assert world.desired() == {"a": ["n2"], "b": ["n1"]}


def test_a_node_at_the_edge_of_a_range_does_not_go_to_and_fro() -> None:
    world = World(settings(shard("low", rate(0, 0.6)), shard("high", rate(0.6, 1)), margin=0.05))
    world.node("n1", 58)
    world.carry_out()
    changes = []
    for used in (61, 59, 62, 58, 65, 59, 66, 62, 61, 64, 60, 66):
        world.use("n1", used)
        changes.append(bool(world.carry_out().changed))
    assert changes == [False] * 6 + [True] + [False] * 3 + [True, True]


def test_a_change_of_use_that_says_nothing_new_makes_no_new_plan() -> None:
    world = World(settings(*LOW_HIGH))
    world.node("n1", 0)
    world.planner.set_pod("p", "n1", {"cpu": 10_000, "memory": 1})
    before = world.plan()
    assert world.planner.set_pod("p", "n1", {"cpu": 10_100, "memory": 7})
    assert not world.planner.set_pod("p", "n1", {"cpu": 10_100, "memory": 7})
    assert world.plan() is before


@pytest.mark.parametrize("what", ["cordoned", "not_ready"])
def test_a_node_may_be_kept_where_it_is_while_it_takes_no_pods(what: str) -> None:
    world = World(treating(**{what: "keep"}))  # type: ignore[arg-type]
    world.nodes(n1=0, n2=0, n3=0)
    world.carry_out()
    aside = {"cordoned": True} if what == "cordoned" else {"ready": False}
    world.node("n1", **aside)  # type: ignore[arg-type]
    world.node("n9", **aside)  # type: ignore[arg-type]
    plan = world.plan()
    assert plan.desired["a"] == ("n1", "n2", "n3"), "and it counts in no limit"
    assert plan.counts["a"] == 3
    assert plan.unassigned == {"n9": "not ready" if what == "not_ready" else "cordoned"}


def test_a_node_that_is_both_is_kept_only_if_both_may_be() -> None:
    for other, stays in (("exclude", False), ("keep", True), ("include", True)):
        world = World(treating(cordoned="keep", not_ready=other))  # type: ignore[arg-type]
        world.node("n1")
        world.carry_out()
        world.node("n1", cordoned=True, ready=False)
        assert bool(world.plan().desired["a"]) is stays


def test_what_a_foreign_shard_wants_is_given_to_none_of_ours() -> None:
    world = World(settings(shard("a"), leftover="a"))
    world.nodes(n1=0, n2=0)
    world.carry_out()
    world.planner.set_foreign("theirs", ["n1", "ghost"])
    world.planner.set_foreign("others", ["n1"])
    plan = world.plan()
    assert plan.desired["a"] == ("n2",)
    assert plan.unassigned == {"n1": "wanted by the foreign shard others"}
    world.planner.set_foreign("others", [])
    assert world.plan().unassigned == {"n1": "wanted by the foreign shard theirs"}
    world.planner.set_foreign("theirs", [])
    assert world.plan().desired["a"] == ("n1", "n2")


def test_why_a_node_moves_is_told() -> None:
    world = World(
        settings(
            shard("a", rate(0, 1), limit(0, 1)),
            shard("b", rate(0.5, 1)),
            shard("c", rate(0.9, 1), limit(1)),
            leftover="a",
        )
    )
    world.nodes(n1=10, n2=90, n3=60, n4=20, n6=55)
    world.node("n5", cordoned=True)
    world.are_in(a=["n1"], b=["n2", "n4", "n7"], c=["n5"], old=["n6"])
    plan = world.plan()
    assert {move.node: (move.source, move.target, move.why) for move in plan.moves} == {
        "n1": ("a", "c", "a has no place for it; for the minimum of c"),
        "n2": ("b", "a", "a comes before b; chosen by a"),
        "n3": (None, "b", "chosen by b"),
        "n4": ("b", None, "no shard has a place for it"),
        "n5": ("c", None, "cordoned"),
        "n6": ("old", "b", "old is not configured; chosen by b"),
        "n7": ("b", None, "there is no such node"),
    }
    assert plan.desired["old"] == () and plan.changes["old"].removed == ("n6",)


def test_a_plan_stays_what_it_is_while_the_planner_goes_on() -> None:
    world = World(settings(*LOW_HIGH, leftover="low"))
    world.nodes(n1=10, n2=80, n3=65)
    plan = world.plan()
    world.carry_out()
    world.planner.delete_node("n1")
    world.use("n2", 5)
    world.planner.reconfigure(settings(shard("other")))
    world.node("n4")
    world.plan()
    assert {name: list(nodes) for name, nodes in plan.desired.items()} == {"low": ["n1", "n3"], "high": ["n2"]}
    assert [move.node for move in plan.moves] == ["n1", "n2", "n3"]
    assert plan.changes["high"].added == ("n2",)


def test_what_is_not_in_a_plan_is_not_found_in_it() -> None:
    plan = World(settings(*LOW_HIGH)).plan()
    with pytest.raises(KeyError):
        plan.desired["other"]
    assert "low" in plan.desired
    assert "low" not in plan.changes


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [([("Ready", "True")], True), ([("Ready", "Unknown")], False), ([("Ready", "False")], False), ([], False)],
)
def test_a_node_is_ready_if_its_condition_says_so(conditions: Iterable[tuple[str, str]], ready: bool) -> None:
    node = wire.Node(
        metadata=wire.Metadata(name="n1", labels=WARM),
        spec=wire.NodeSpec(unschedulable=True),
        status=wire.NodeStatus(
            allocatable={"cpu": "1500m", "memory": "1Gi", "broken": "x"},
            conditions=[wire.Condition(type=kind, status=status) for kind, status in conditions],
        ),
    )
    assert node_facts(node) == NodeFacts(
        name="n1", labels=WARM, allocatable={"cpu": 1500, "memory": 1 << 30}, cordoned=True, ready=ready
    )


def test_settings_without_shards_are_refused() -> None:
    with pytest.raises(SettingsError, match="at least one shard"):
        PlanSettings(shards=())


def test_of_a_node_that_is_gone_nothing_is_kept_once_no_shard_names_it() -> None:
    """Or a cluster whose nodes come and go would take more memory for ever."""
    world = World(settings(shard("a")))
    for number in range(4):
        world.node(f"n{number}")
        world.planner.delete_pod(f"pod on n{number}")
        world.carry_out()
        world.planner.delete_node(f"n{number}")
        world.carry_out()
        world.plan()
    assert dict(world.planner._columns.row_of) == {}
