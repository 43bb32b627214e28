"""The sharding controller's process on an embedded cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_scheduler.controllers.sharding.controller import ShardingController
from agent_scheduler.process.controller_flags import SHARDING
from agent_scheduler.process.controllers import ControllersProcess
from tests.support.controllers import BatchWorld
from tests.support.embedded import EmbeddedCluster, embedded_cluster, until
from tests.support.sharded import ShardedCluster


class Rounds:
    """Counts the reconciliations that all controllers have begun since its creation."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        original = ShardingController._sync

        async def counted(controller: ShardingController, wanted: Callable[[], bool]) -> float:
            self.begun += 1
            return await original(controller, wanted)

        monkeypatch.setattr(ShardingController, "_sync", counted)

    async def go_on(self) -> None:
        """Wait until a reconciliation that begins later than now has ended."""
        before = self.begun
        await until(lambda: self.begun >= before + 2)


class World(ShardedCluster, BatchWorld):  # type: ignore[misc]
    """A cluster with the sharding controller's processes."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        BatchWorld.__init__(self, cluster)
        self.watch_shards()

    def start(self, **more: Any) -> ControllersProcess:  # type: ignore[override]
        return BatchWorld.start(self, SHARDING, **more)

    async def planned_again(self, times: int) -> None:
        """Wait for `times` further plans of the last process, which it makes while a shard waits."""
        plans = "agent_scheduler_sharding_plan_duration_seconds_count"
        before = self.metric(plans)
        await until(lambda: self.metric(plans) >= before + times)


@asynccontextmanager
async def world(**server: Any) -> AsyncIterator[World]:
    """Start a world; at the end its controllers stop with exit code 0, and no two of their shards ever overlapped."""
    async with embedded_cluster(**server) as cluster:
        made = World(cluster)
        await made.prepare()
        async with made.shards:
            try:
                yield made
            finally:
                await made.end()
            if made.shards.history:
                made.assert_never_overlapped()


@asynccontextmanager
async def following(nodes: int, *, config: Any = None, **process: Any) -> AsyncIterator[World]:
    """Start a `world` with nodes `n000`..., a ConfigMap if given, and a process with the other arguments."""
    async with world() as it:
        await it.add_nodes(nodes)
        if config is not None:
            await it.configure(config)
        it.start(**process)
        yield it
