"""When a shard that is no longer configured may be deleted, on a clock that the test turns."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from agent_scheduler.controllers.sharding.retiring import HOLDERLESS, SETTLED, Retirement
from agent_scheduler.controllers.sharding.store import ShardInfo
from embedded_kubernetes.errors import ApiError
from embedded_kubernetes.requests import Disturbance
from tests.support.embedded import EmbeddedCluster, embedded_cluster
from tests.unit.shards.test_holders import Watcher

USED = ShardInfo(name="other", uid="u", resource_version="1", ours=True, desired=frozenset(), used=True)
UNUSED = replace(USED, used=False)


class Leaving(Watcher):
    """Whoever deletes the shard, and looks at its lease."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        super().__init__(cluster)
        self.now = 100.0
        self.retirement = Retirement(self.holders, clock=lambda: self.now)
        self.retirement.only([USED])

    async def may_go(self, shard: ShardInfo, *, after: float = 0.0) -> bool:
        self.now += after
        return await self.retirement.may_go(shard)


@pytest.fixture
async def it() -> AsyncIterator[Leaving]:
    async with embedded_cluster() as cluster:
        yield Leaving(cluster)


async def test_an_unused_shard_goes_when_nothing_of_it_has_changed_for_a_while(it: Leaving) -> None:
    # Nobody is asked about it.
    it.cluster.transport.is_away = True
    assert not await it.may_go(UNUSED)
    changed = replace(UNUSED, resource_version="2")
    assert not await it.may_go(changed, after=SETTLED - 0.1)
    assert not await it.may_go(changed, after=SETTLED - 0.1)
    assert await it.may_go(changed, after=0.1)


async def test_a_shard_in_use_stays_while_its_lease_is_renewed_and_goes_long_after(it: Leaving) -> None:
    for version in range(5):
        await it.lease(holderIdentity="x", leaseDurationSeconds=15, renewTime=f"2026-01-01T00:00:0{version}Z")
        assert not await it.may_go(USED)
        it.now += 74.0
    assert not await it.may_go(USED)
    assert await it.may_go(USED, after=1.0)


async def test_a_released_lease_is_nobodys(it: Leaving) -> None:
    await it.lease(holderIdentity="", leaseDurationSeconds=15)
    assert not await it.may_go(USED)
    assert await it.may_go(USED, after=60.0)


async def test_a_scheduler_without_a_lease_has_a_while_to_leave(it: Leaving) -> None:
    assert not await it.may_go(USED)
    assert not await it.may_go(USED, after=HOLDERLESS - 1.0)
    assert await it.may_go(USED, after=1.0)


@pytest.mark.parametrize("status", [0, 403, 500])
async def test_what_cannot_be_asked_is_no_reason_to_delete(status: int) -> None:
    error = Disturbance(error=ApiError(status, "Forbidden", "no"))
    async with embedded_cluster(disturb=lambda _: error) as cluster:
        cluster.transport.is_away = not status
        it = Leaving(cluster)
        for _ in range(3):
            assert not await it.may_go(USED, after=1000.0)


async def test_a_shard_that_is_configured_again_begins_anew_when_it_is_to_go_once_more(it: Leaving) -> None:
    assert not await it.may_go(UNUSED)
    it.now += SETTLED
    it.retirement.only([])
    it.retirement.only([UNUSED])
    assert not await it.may_go(UNUSED)
