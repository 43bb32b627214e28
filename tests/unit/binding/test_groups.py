"""Groups are bound whole or not at all, as far as that is ours to say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent_scheduler.engine.decide.decide import CandidateNodes
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.engine.recount import contradictions
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.plugin import PluginArgs
from kube_client.bind import BindOutcome
from kube_client.pace import TICK
from kube_client.testing.virtual import virtual_time
from tests.features.fastpath.test_own_reserve import Licenses, with_licenses
from tests.features.fastpath.test_permit import Together
from tests.support.running import profile_of

from .group_world import World, binding

PROFILE = build_profile(ProfileSpec(scheduler_name="agent-scheduler"))

pytestmark = pytest.mark.promise("S27")


@asynccontextmanager
async def grouped(*nodes: str, cpu: str = "1", concurrency: int = 8) -> AsyncIterator[World]:
    async with binding(World(PROFILE, concurrency=concurrency)) as world:
        world.nodes(*nodes, cpu=cpu)
        yield world


def licensed() -> tuple[Licenses, World]:
    """A world with a plugin that reserves one license a node and notes it before the bind."""
    plugin = Licenses(PluginArgs())
    return plugin, World(with_licenses(plugin))


async def test_all_members_are_assumed_before_any_bind_is_sent() -> None:
    async with grouped("a", "b", "c", concurrency=2) as world:
        members = world.gang(*(world.pod(name) for name in "xyz"))
        assert world.commit(members, 3) == {}
        assert world.placed.keys() == {"x", "y", "z"} and world.ledger.assumed == 3
        # One of the concurrent binds is left to the fast path.
        assert world.order == ["x"]
        for uid in "xyz":
            await world.answer(uid)
        assert world.order == ["x", "y", "z"] == world.told.scheduled_uids
        assert world.ledger.assumed == 0 and not world.told.problems
        await world.binder.drained()


async def test_fewer_than_the_minimum_change_nothing() -> None:
    async with grouped("a", "b", "c") as world:
        members = world.gang(*(world.pod(name) for name in "xyz"))
        rival = world.pod("rival")
        world.ledger.assume(rival, world.ledger.rows[members[0].result.placement.candidates[0].node_name])
        before = (world.ledger.sequence, list(world.ledger.columns.taken), world.placed)
        refused = world.commit(members, 3)
        assert refused.keys() == {"x", "y", "z"}
        assert "NodeResourcesFit" in refused["x"] and "only 2 of 3" in refused["y"]
        assert (world.ledger.sequence, list(world.ledger.columns.taken), world.placed) == before
        assert not world.order and not world.told.problems
        assert contradictions(world.ledger) == []


async def test_what_is_above_the_minimum_may_be_left_out() -> None:
    async with grouped("a", "b", "c") as world:
        members = world.gang(*(world.pod(name) for name in "xyz"))
        world.cluster.delete_pod("y")
        assert world.commit(members, 2) == {"y": "it no longer waits"}
        assert world.order == ["x", "z"]


async def test_a_member_that_was_changed_or_whose_node_is_gone_does_not_stand() -> None:
    async with grouped("a", "b", "c") as world:
        members = world.gang(*(world.pod(name) for name in "xyz"))
        world.pod("x", cpu="500m")
        world.cluster.delete_node(members[1].result.placement.candidates[0].node_name)
        assert world.commit(members, 1) == {
            "x": "its requirements have changed",
            "y": f"node {members[1].result.placement.candidates[0].node_name} is gone",
        }


async def test_members_that_keep_one_another_away_are_judged_one_beside_the_other() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "g"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    async with grouped("a", "b", cpu="4") as world:
        members = world.gang(*(world.pod(name, labels={"app": "g"}, affinity=apart) for name in "xy"))
        nodes = [each.result.placement.candidates[0] for each in members]
        assert {each.node_name for each in nodes} == {"a", "b"}
        # As if the second had been decided on before the first was there.
        beside = members[1].result
        second = members[1]._replace(
            result=beside._replace(placement=CandidateNodes((nodes[0],)), cls=beside.pod.cls, filters=())
        )
        refused = world.commit([members[0], second], 2)
        assert refused["y"] == f"InterPodAffinity now refuses node {nodes[0].node_name}"
        assert not world.placed and not world.ledger.columns.terms
        assert world.commit(members, 2) == {}
        assert sorted(world.placed) == ["x", "y"] and contradictions(world.ledger) == []


async def test_a_refused_bind_of_one_member_leaves_the_others_and_is_told() -> None:
    async with grouped("a", "b") as world:
        assert world.commit(world.gang(world.pod("x"), world.pod("y")), 2) == {}
        await world.answer("x", BindOutcome.REFUSED)
        await world.answer("y")
        assert world.told.problems == {"x": "binding rejected"}
        assert world.told.scheduled_uids == ["y"] and world.placed.keys() == {"y"}
        assert contradictions(world.ledger) == []


async def test_a_member_whose_outcome_is_unknown_keeps_its_room_until_the_watch_tells() -> None:
    async with grouped("a") as world:
        assert world.commit(world.gang(world.pod("x")), 1) == {}
        await world.answer("x", BindOutcome.UNKNOWN)
        assert world.ledger.assumed == 1 and world.binder.in_flight == 1
        world.cluster.delete_pod("x")
        assert not world.placed and not world.told.problems


class Full:
    """A queue that can hold so many."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.held: list[str] = []

    def admit(self, pod: PodInfo) -> str:
        if len(self.held) >= self.room:
            return "queue q has too little capability left"
        self.held.append(pod.uid)
        return ""

    def withdraw(self, pod: PodInfo) -> None:
        self.held.remove(pod.uid)


async def test_a_queue_that_cannot_hold_the_minimum_holds_none() -> None:
    async with grouped("a", "b", "c") as world:
        members = world.gang(*(world.pod(name) for name in "xyz"))
        queue = Full(2)
        assert world.commit(members, 3, queue)["z"] == "queue q has too little capability left"
        assert not queue.held and not world.placed
        assert world.commit(members, 2, queue).keys() == {"z"}
        assert queue.held == ["x", "y"] and world.placed.keys() == {"x", "y"}


async def test_what_the_trial_reserved_is_the_binders_and_is_given_back_where_prebind_fails() -> None:
    plugin, world = licensed()
    async with binding(world):
        world.nodes("a", "b")
        members = world.gang(world.pod("x"), world.pod("y"))
        assert set(plugin.taken) == {"x", "y"}
        plugin.problem = "no ink"
        assert world.commit(members, 2) == {}
        assert set(world.placed) == {"x", "y"}
        await world.settle()
        assert world.told.problems == dict.fromkeys("xy", 'running PreBind plugin "Licenses": no ink')
        assert not plugin.taken and not world.placed and not world.order


async def test_what_a_group_reserves_in_vain_is_given_back() -> None:
    plugin, world = licensed()
    async with binding(world):
        world.nodes("a", "b")
        members = [each._replace(reservations=()) for each in world.gang(world.pod("x"), world.pod("y"))]
        plugin.taken.clear()
        plugin.taken["somebody"] = members[1].result.placement.candidates[0].node_name
        refused = world.commit(members, 2)
        assert "no longer has the devices or volumes" in refused["y"] and set(plugin.taken) == {"somebody"}
        assert not world.placed


async def test_groups_leave_room_for_binds_of_the_fast_path() -> None:
    async with grouped(*"abcdefgh", concurrency=4) as world:
        assert world.commit(world.gang(*(world.pod(f"g{number}") for number in range(6))), 6) == {}
        assert world.order == ["g0", "g1", "g2"]
        assert world.binder.has_room()
        for name in ("p0", "p1"):
            world.submit(name)
            world.binder.judge()
        world.binder.send()
        assert world.order == ["g0", "g1", "g2", "p0"]
        await world.answer("g0")
        assert world.order[4:] == ["p1"]
        await world.answer("p0")
        assert world.order[5:] == ["g3"]


@virtual_time
async def test_groups_are_sent_one_after_the_other_and_few_at_a_time_while_others_come() -> None:
    async with grouped(*(f"n{number}" for number in range(30)), concurrency=64) as world:
        world.submit("p")
        world.binder.judge()
        world.binder.send()
        assert world.commit(world.gang(*(world.pod(f"g{number}") for number in range(20))), 20) == {}
        assert world.order == ["p", "g0"]
        await asyncio.sleep(TICK)
        assert world.order == ["p", "g0", "g1"]
        await asyncio.sleep(100 * TICK)
        assert world.order == ["p", "g0", "g1", "g2", "g3"]
        await world.answer("g0")
        assert world.order[5:] == ["g4"]
        world.now = 1.0
        await world.answer("g1")
        assert len(world.order) == 21


@virtual_time
async def test_groups_use_most_of_the_concurrent_binds_while_no_other_pods_come() -> None:
    async with grouped(*(f"n{number}" for number in range(60)), concurrency=32) as world:
        assert world.commit(world.gang(*(world.pod(f"g{number}") for number in range(60))), 60) == {}
        assert len(world.order) == 28


@virtual_time
async def test_members_that_wait_their_turn_are_sent_though_no_other_bind_ends() -> None:
    async with grouped(*"abcd", concurrency=64) as world:
        world.submit("p")
        world.binder.judge()
        world.binder.send()
        await world.answer("p")
        assert world.commit(world.gang(world.pod("x"), world.pod("y")), 2) == {}
        assert world.order == ["p", "x"] and world.placed.keys() == {"p", "x", "y"}
        await world.answer("x")
        await asyncio.sleep(TICK)
        assert world.order == ["p", "x", "y"]
        await world.answer("y")
        await world.binder.drained()


async def test_without_run_no_group_is_committed() -> None:
    world = World(PROFILE)
    world.nodes("a")
    assert world.commit(world.gang(world.pod("x")), 1) == {"x": "binds are not sent now"}
    assert not world.placed


async def test_members_do_not_leave_room_for_one_anothers_nominations() -> None:
    async with grouped("a", "b") as world:
        x, y = world.pod("x"), world.pod("y")
        members = world.gang(x, y)
        first, second = (each.result.placement.candidates[0].node_name for each in members)
        # As an earlier session had it, the other way round.
        world.cluster.queue.nominate(x, second)
        world.cluster.queue.nominate(y, first)
        assert world.commit(members, 2) == {}
        assert world.placed == {"x": first, "y": second}
        for uid in "xy":
            await world.answer(uid)
        await world.binder.drained()


async def test_members_leave_room_for_the_nominations_of_others() -> None:
    async with grouped("a", "b") as world:
        members = world.gang(world.pod("x"), world.pod("y"))
        node_name = members[1].result.placement.candidates[0].node_name
        world.cluster.queue.nominate(world.pod("other"), node_name)
        assert "kept for pods that are nominated" in world.commit(members, 2)["y"]
        assert world.placed == {}


async def test_a_pod_of_a_group_that_is_not_bound_after_all_does_not_wait_for_permit_any_more() -> None:
    plugin = Together(PluginArgs())
    plugin.least = 10
    async with binding(World(profile_of(plugin, points=("filter", "reserve", "permit")))) as world:
        world.nodes("a", "b")
        members = [each._replace(reservations=()) for each in world.gang(world.pod("x"), world.pod("y"))]
        plugin.reserved.clear()
        world.cluster.delete_node(members[1].result.placement.candidates[0].node_name)
        assert world.commit(members, 2).keys() == {"x", "y"}
        assert not world.placed and not plugin.reserved and not plugin.waiting
