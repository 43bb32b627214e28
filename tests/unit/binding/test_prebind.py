"""What the owner of pods before their bind keeps of them, and for how long."""

from __future__ import annotations

from dataclasses import replace

from agent_scheduler.plugin import PluginArgs
from tests.features.fastpath.test_permit import Together
from tests.support.running import AGENT

from .group_world import World, binding


async def test_a_pod_of_a_group_that_is_not_bound_after_all_does_not_wait_for_permit_any_more() -> None:
    plugin = Together(PluginArgs())
    plugin.least = 10
    profile = replace(
        AGENT,
        filters=(*AGENT.filters, plugin),
        reserves=(*AGENT.reserves, plugin),
        permits=(*AGENT.permits, plugin),
    )
    async with binding(World(profile)) as world:
        world.nodes("a", "b")
        members = [each._replace(reservations=()) for each in world.gang(world.pod("x"), world.pod("y"))]
        plugin.reserved.clear()
        world.cluster.delete_node(members[1].result.placement.candidates[0].node_name)
        assert world.commit(members, 2).keys() == {"x", "y"}
        assert not world.placed and not plugin.reserved and not plugin.waiting
