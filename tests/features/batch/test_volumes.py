"""Installation whose members have volumes, in a whole process on an embedded cluster with its volume controller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent_scheduler.process.runtime import Runtime
from tests.support.batched import add_group, install
from tests.support.embedded import EmbeddedCluster, until
from tests.support.installation import Installation, process
from tests.support.volume_cluster import NOBODY, Storage, storage, using


class VolumeGangs(Storage, Installation):
    def __init__(self, cluster: EmbeddedCluster, runtime: Runtime) -> None:
        Installation.__init__(self, cluster, runtime)
        self.cluster = cluster

    async def volume_gang(self, name: str, members: int) -> None:
        """Each member with a claim that is bound when its pod has a node."""
        await add_group(self, name, minMember=members, queue="q")
        for number in range(members):
            own = f"{name}-{number}"
            await self.add_claim(own)
            await self.member(own, name, volumes=using(own))


@asynccontextmanager
async def volume_gangs() -> AsyncIterator[VolumeGangs]:
    async with storage() as found:
        await install(found.cluster)
        await found.add_class(provisioner=NOBODY)
        async with process(found.cluster) as runtime:
            world = VolumeGangs(found.cluster, runtime)
            await world.queue("q")
            yield world


async def test_a_gang_with_too_few_volumes_holds_none_and_makes_no_session_due_by_what_is_tried_for_it() -> (
    None
):
    """Each session has volumes reserved for the members that fit, and gives them back."""
    async with volume_gangs() as world:
        await world.add_nodes("a")
        for number in range(2):
            await world.add_volume(f"pv-{number}", on="a")
        await world.volume_gang("g", 3)
        await until(lambda: world.condition("g-2"))
        await world.rest()
        assert await world.is_left_alone()
        # One that something else makes due makes no other due, either.
        sessions = world.sessions
        world.batch.waiting.due.set()
        await until(lambda: world.sessions > sessions)
        assert await world.is_left_alone()
        assert await world.count_placed("g") == 0 and await world.claimed() == {}
        await world.add_volume("pv-2", on="a")
        await until(lambda: world.has_placed("g", 3))
        assert len(await world.claimed()) == 3
