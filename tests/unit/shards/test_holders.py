"""Who lives and who is dead, told by leases and our own clock."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent_scheduler.engine.shards.claims import Liveness
from agent_scheduler.shards.holders import Holders, lease_name
from embedded_kubernetes.fault_plan import plan_of
from embedded_kubernetes.faults import Injector
from kube_client.retry import Timing
from tests.support.embedded import EmbeddedCluster, embedded_cluster

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


class Watcher:
    """Looks at the lease of shard `other`: good for 15 seconds at least, and 60 of fence."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.now = 0.0
        self.holders = Holders(
            cluster.transport, namespace="default", lease_duration=15, fence=60, timing=Timing(clock=lambda: self.now)
        )

    async def lease(self, **spec: Any) -> None:
        name = lease_name("other")
        body = {"metadata": {"name": name}, "spec": spec}
        if (await self.cluster.call("GET", f"{LEASES}/{name}")).status == 404:
            await self.cluster.add(LEASES, body)
        else:
            await self.cluster.patch(f"{LEASES}/{name}", body)

    async def at(self, now: float) -> Liveness:
        self.now = now
        return (await self.holders.look(["other"]))["other"]


@pytest.fixture
async def watcher() -> AsyncIterator[Watcher]:
    async with embedded_cluster() as cluster:
        yield Watcher(cluster)


async def test_a_holder_is_dead_after_its_lease_and_the_fence_and_not_before(watcher: Watcher) -> None:
    await watcher.lease(holderIdentity="x", leaseDurationSeconds=15, renewTime="2026-01-01T00:00:00.000000Z")
    assert await watcher.at(100) is Liveness.ALIVE
    assert await watcher.at(174.9) is Liveness.ALIVE
    assert await watcher.at(175) is Liveness.DEAD


async def test_any_change_of_the_lease_begins_the_time_anew(watcher: Watcher) -> None:
    await watcher.lease(holderIdentity="x", leaseDurationSeconds=15, renewTime="2026-01-01T00:00:00.000000Z")
    assert await watcher.at(0) is Liveness.ALIVE
    # A clock that runs backwards there says nothing here.
    await watcher.lease(holderIdentity="x", leaseDurationSeconds=15, renewTime="2025-01-01T00:00:00.000000Z")
    assert await watcher.at(80) is Liveness.ALIVE
    assert await watcher.at(154) is Liveness.ALIVE
    assert await watcher.at(155) is Liveness.DEAD


async def test_who_comes_back_lives(watcher: Watcher) -> None:
    await watcher.lease(holderIdentity="x", leaseDurationSeconds=15)
    await watcher.at(0)
    assert await watcher.at(75) is Liveness.DEAD
    await watcher.lease(holderIdentity="y", leaseDurationSeconds=15)
    assert await watcher.at(76) is Liveness.ALIVE


@pytest.mark.parametrize(
    ("holder", "seconds", "dead"),
    [
        ("x", 100, 160),
        # A shorter one than ours is taken for ours.
        ("x", 1, 75),
        # Of one that was released only the fence is waited for.
        ("", 1, 60),
    ],
)
async def test_a_longer_lease_is_waited_for(watcher: Watcher, holder: str, seconds: int, dead: int) -> None:
    await watcher.lease(holderIdentity=holder, leaseDurationSeconds=seconds)
    await watcher.at(0)
    assert await watcher.at(dead - 1) is Liveness.ALIVE
    assert await watcher.at(dead) is Liveness.DEAD


async def test_without_a_lease_nothing_is_known_and_a_deleted_one_begins_anew(watcher: Watcher) -> None:
    assert await watcher.at(1000) is Liveness.UNKNOWN
    await watcher.lease(holderIdentity="x", leaseDurationSeconds=15)
    await watcher.at(1000)
    await watcher.cluster.ask("DELETE", f"{LEASES}/{lease_name('other')}")
    assert await watcher.at(2000) is Liveness.UNKNOWN
    await watcher.lease(holderIdentity="x", leaseDurationSeconds=15)
    assert await watcher.at(2001) is Liveness.ALIVE


async def test_while_the_server_cannot_be_asked_nobody_is_dead(watcher: Watcher) -> None:
    await watcher.lease(holderIdentity="x", leaseDurationSeconds=15)
    await watcher.at(0)
    watcher.cluster.transport.is_away = True
    assert await watcher.at(1000) is Liveness.ALIVE


@pytest.mark.parametrize("says", ["notFound", "forbidden", "loginPage"])
async def test_what_is_not_the_api_servers_says_nothing_of_a_lease(says: str) -> None:
    """Least of all that there is none: a shard without a holder may be given to others."""
    rule = {"match": {"path": f"{LEASES}/*"}, "fault": {"middlebox": {"says": says}}}
    injector = Injector(plan_of(json.dumps({"rules": [rule]})))
    lying = False
    async with embedded_cluster(disturb=lambda request: injector(request) if lying else None) as cluster:
        watcher = Watcher(cluster)
        await watcher.lease(holderIdentity="x", leaseDurationSeconds=15)
        await watcher.at(0)
        lying = True
        assert await watcher.at(70) is Liveness.ALIVE
        lying = False
        # Nor does it begin the time anew.
        assert await watcher.at(75) is Liveness.DEAD
