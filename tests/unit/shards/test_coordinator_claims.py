"""What a coordinator tells its scheduler to use and to hold, and when: never more than its shard says at that time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from agent_scheduler.objects.shard import NODE_SHARDS
from agent_scheduler.shards import coordinator
from agent_scheduler.shards.coordinator import Coordinator
from agent_scheduler.shards.holders import Holders
from kube_client.reflector import WatchTimes
from kube_client.testing.virtual import timing
from kube_client.transport import Response
from tests.support.embedded import until
from tests.support.shared import SharedCluster, shared_cluster
from tests.support.transports import Through

Names = frozenset[str]


class Told:
    """A scheduler that does nothing but remember."""

    def __init__(self) -> None:
        self.used: Names = frozenset()
        self.held: Names = frozenset()

    def use(self, nodes: Names, unready: str) -> None:
        self.used = nodes

    def hold(self, nodes: Names) -> None:
        self.held = nodes

    def in_flight(self, nodes: Names) -> Names:
        return frozenset()

    async def catch_up(self, version: str) -> None: ...

    def shard(self, desired: int, in_use: int, to_add: int, to_remove: int) -> None: ...

    def shard_write(self, what: str) -> None: ...


class Noting(Through):
    """A transport whose watches tell nothing. It notes what was used and held when each request was sent."""

    def __init__(self, shared: SharedCluster, told: Told) -> None:
        super().__init__(shared.transport)
        self._told = told
        self.lists: list[Names] = []
        self.writes: list[Names] = []

    async def request(self, method: str, path: str, **more: Any) -> Response:
        if method == "PATCH":
            self.writes.append(self._told.held)
        elif path.startswith(f"{NODE_SHARDS}?"):
            self.lists.append(self._told.used)
        return await super().request(method, path, **more)

    @asynccontextmanager
    async def stream(self, path: str, *, read_timeout: float) -> AsyncIterator[Any]:
        async def silent() -> AsyncIterator[list[bytes]]:
            await asyncio.Event().wait()
            yield []

        yield silent()


@asynccontextmanager
async def coordinated(shared: SharedCluster, shard: str) -> AsyncIterator[tuple[Coordinator, Told, Noting]]:
    told = Told()
    noting: Any = Noting(shared, told)
    holders = Holders(noting, namespace="kube-system", lease_duration=15.0, fence=0.1, timing=timing())
    made = Coordinator(
        noting, shard=shard, side=told, holders=holders, observer=told, timing=timing(), times=WatchTimes()
    )
    running = asyncio.create_task(made.run())
    try:
        yield made, told, noting
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_a_claim_that_was_erased_is_not_held_until_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "_RESYNC", 0.05)
    async with shared_cluster(2) as shared:
        await shared.desire("a", ["n0", "n1"])
        async with coordinated(shared, "a") as (_, told, noting):
            await until(lambda: told.used == {"n0", "n1"})
            before = len(noting.writes)
            await shared.write_status("a", nodesInUse=["n1"])
            await until(lambda: len(noting.writes) > before)
            assert noting.writes[before] == {"n1"}
            await until(lambda: told.used == {"n0", "n1"})


async def test_who_ends_decides_on_no_node_before_anybody_is_asked_about_it() -> None:
    async with shared_cluster(1) as shared:
        await shared.desire("a", ["n0"])
        async with coordinated(shared, "a") as (made, told, noting):
            await until(lambda: told.used == {"n0"})
        before = len(noting.lists)
        await made.release()
        assert noting.lists[before] == frozenset()
        assert told.used == told.held == frozenset()
        assert await shared.in_use("a") == ""
