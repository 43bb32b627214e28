"""What the binder makes of single results from the decision to the bind, and when it says that nothing is under way."""

from __future__ import annotations

import asyncio

import pytest

from agent_scheduler.engine.decide.decide import ConflictPolicy
from agent_scheduler.engine.framework.prebind import Attempt
from agent_scheduler.plugin import PluginArgs
from tests.features.fastpath.test_own_reserve import Licenses, with_licenses
from tests.support.running import AGENT

from .group_world import World, binding


@pytest.mark.parametrize("policy", list(ConflictPolicy))
async def test_results_are_judged_by_the_policy_of_the_last_configuration(policy: ConflictPolicy) -> None:
    (before,) = set(ConflictPolicy) - {policy}
    async with binding(World(AGENT)) as world:
        world.nodes("a", cpu="4")
        world.binder.reconfigure(before, adapts=False)
        world.binder.reconfigure(policy, adapts=False)
        world.submit("x")
        # Another pod takes some of the node, and there is room for both.
        world.ledger.assume(world.pod("rival"), world.ledger.rows["a"])
        world.binder.judge()
        stands = policy is ConflictPolicy.REVALIDATE
        assert world.told.problems == ({} if stands else {"x": "outraced"})
        assert ("x" in world.placed) is stands


@pytest.mark.parametrize("change", ["deleted", "another class"])
async def test_a_pod_that_changes_between_decision_and_judgement_is_not_bound(change: str) -> None:
    async with binding(World(AGENT)) as world:
        world.nodes("a", cpu="4")
        world.submit("x")
        if change == "deleted":
            world.cluster.delete_pod("x")
        else:
            world.pod("x", cpu="2")
        world.binder.judge()
        assert not world.placed and not world.order
        assert (world.told.done_uids, world.told.problems) == (
            (["x"], {}) if change == "deleted" else ([], {"x": "outdated"})
        )


class Slow(Licenses):
    """Its PreBind waits for somebody else until `ready`, and then writes until `written`."""

    def __init__(self, *, for_others: bool) -> None:
        super().__init__(PluginArgs())
        self.waits_for_others = for_others
        self.ready, self.written = asyncio.Event(), asyncio.Event()

    async def _note(self, attempt: Attempt) -> str:
        with attempt.waiting():
            await self.ready.wait()
        await self.written.wait()
        return ""


@pytest.mark.parametrize("for_others", [False, True])
async def test_what_waits_for_others_is_not_under_way_until_it_is_written_or_bound(for_others: bool) -> None:
    plugin = Slow(for_others=for_others)
    async with binding(World(with_licenses(plugin))) as world:
        world.nodes("a")

        async def is_drained() -> bool:
            drained = asyncio.create_task(world.binder.drained())
            await world.settle()
            return drained.done() or not drained.cancel()

        assert world.commit(world.gang(world.pod("x")), 1) == {}
        assert await is_drained()
        plugin.ready.set()
        assert await is_drained() is for_others
        plugin.written.set()
        await world.settle()
        assert world.order == ["x"] and not await is_drained()
        await world.answer("x")
        assert await is_drained()
