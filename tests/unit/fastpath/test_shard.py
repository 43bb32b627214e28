"""Decisions within a shard: what the profiles and views of a shard choose, and from which nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_scheduler.engine.decide.decide import CandidateNodes, ClassViews, decide
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.events.events import NODE_SHARD_UPDATE, ClusterEvent
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.engine.shards.claims import Membership, ShardingMode
from agent_scheduler.fastpath.shard import SchedulerShard, within
from tests.support.engine import World, node
from tests.support.handles import handle_of

NAME = "agent-scheduler"


def shard_of(sharded: Sharded, mode: ShardingMode = ShardingMode.HARD) -> SchedulerShard:
    """One whose events for pods that wait are noted: each with the names of its nodes, or None for all pods."""

    def move_all(event: ClusterEvent, old: object, new: list[Any] | None) -> None:
        assert event == NODE_SHARD_UPDATE and old is None
        sharded.told.append(new if new is None else [each.name for each in new])

    async def caught_up(version: str) -> None:
        sharded.told.append(version)

    events = cast(Any, SimpleNamespace(move_all=move_all))
    return SchedulerShard(mode, sharded.membership, ledger=sharded.world.ledger, events=events, caught_up=caught_up)


class Sharded:
    """A world of nodes, some of which are in the shard, and a profile of either base for these alone."""

    def __init__(self, world: World, *mine: str, base: str = "agent") -> None:
        self.world = world
        self.membership = Membership()
        self.membership.set(frozenset(mine))
        self.told: list[Any] = []
        self.shard = shard_of(self)
        profile = build_profile(ProfileSpec(scheduler_name=NAME, base=base))
        self._snapshot = Snapshot(world.ledger, handle_of(world.ledger))
        self._views = ClassViews(within(self.membership, {NAME: profile})[NAME], self._snapshot)

    def use(self, *mine: str) -> None:
        self.shard.use(frozenset(mine), "")

    def decide(self, **pod: object) -> list[str] | str:
        """The candidates' nodes, best first, or why there are none."""
        self._snapshot.refresh()
        view = self._views.of(self.world.pod(**pod).cls)
        found = decide(view, self._snapshot.columns, candidates=3)
        if isinstance(found, Refusal):
            return found.message
        assert isinstance(found, CandidateNodes)
        return [each.node_name for each in found.candidates]


@pytest.mark.parametrize("base", ["agent", "default-scheduler"])
def test_of_the_shards_nodes_the_better_ones_come_first(base: str) -> None:
    world = World(*(node(f"n{number}", cpu=str(number)) for number in range(1, 5)))
    sharded = Sharded(world, "n1", "n4", base=base)
    best = sharded.decide(requests={"cpu": "500m"})
    assert sorted(best) == ["n1", "n4"]
    # The default profile spreads: the node with more room is the better one.
    assert best[0] == ("n4" if base == "default-scheduler" else "n1")


def test_outside_of_the_shard_is_a_reason_like_others() -> None:
    sharded = Sharded(World(node("n1")))
    assert sharded.decide() == "0/1 nodes are available: 1 node isn't in scheduler node shard."
    sharded = Sharded(World(node("n1", cpu="1"), node("n2")), "n1")
    assert sharded.decide(requests={"cpu": "2"}) == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node isn't in scheduler node shard."
    )


def test_one_node_of_a_thousand_is_found_wherever_it_is() -> None:
    """Volcano's soft mode looks at a sample of the cluster, and a small shard may not be in it."""
    world = World(*(node(f"n{number:03d}") for number in range(1000)))
    sharded = Sharded(world)
    for mine in ("n000", "n500", "n999"):
        sharded.use(mine)
        assert sharded.decide(requests={"cpu": "1"}) == [mine]


def test_kept_answers_follow_the_shard() -> None:
    world = World(*(node(f"n{number}") for number in range(40)))
    sharded = Sharded(world, *(f"n{number}" for number in range(40)))
    for mine in (["n3"], ["n3", "n4"], [f"n{number}" for number in range(20, 40)], [], ["n0"]):
        sharded.use(*mine)
        for pod in ({"requests": {"cpu": "1"}}, {"requests": {"cpu": "2"}}):
            best = sharded.decide(**pod)
            if mine:
                assert len(best) == min(3, len(mine)) and set(best) <= set(mine)
            else:
                assert best == "0/40 nodes are available: 40 node isn't in scheduler node shard."


def test_pods_that_wait_are_told_of_the_nodes_that_joined_and_of_no_others() -> None:
    sharded = Sharded(World(node("n1"), node("n2"), node("n3")))
    sharded.use("n1", "n2", "unknown")
    assert sharded.told == [["n1", "n2"]]
    sharded.use("n3", "n2", "unknown", "unheard-of")
    assert sharded.told[1:] == [["n3"]]
    sharded.use("n2")
    sharded.use("n2", "unheard-of")
    sharded.use("n2", "unheard-of")
    assert sharded.told[2:] == []


def test_pods_that_wait_are_told_that_there_is_no_shard_to_speak_of_any_more_though_no_node_joined() -> None:
    """What they were refused with is not true any more."""
    sharded = Sharded(World(node("n1")), "n1")
    sharded.shard.use(frozenset(), "nobody says so")
    assert sharded.told == [None] and sharded.shard.unready == "nobody says so"
    sharded.shard.use(frozenset(), "nobody says so")
    assert sharded.told == [None]


def test_in_mode_soft_no_pod_waits_for_the_shard_and_binds_go_anywhere() -> None:
    sharded = Sharded(World(node("n1"), node("n2")))
    soft = shard_of(sharded, ShardingMode.SOFT)
    soft.use(frozenset({"n1"}), "")
    soft.use(frozenset(), "nobody says so")
    assert sharded.told == [] and soft.unready == ""
    assert soft.may_bind_to("n2")


@pytest.mark.promise("S20")
async def test_in_mode_hard_binds_go_to_nodes_whose_claims_stand_and_nowhere_before_any_does() -> None:
    sharded = Sharded(World(node("n1"), node("n2")))
    assert not sharded.shard.may_bind_to("n1")
    sharded.shard.hold(frozenset({"n1"}))
    assert sharded.shard.may_bind_to("n1") and not sharded.shard.may_bind_to("n2")
    await sharded.shard.catch_up("7")
    assert sharded.told == ["7"]
