"""The sharding controller's process against an embedded cluster, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent_scheduler.config.schema import LeaderElection, Logging, Serving
from agent_scheduler.config.sharding import DEFAULT_SCHEDULER_CONFIGS, parse_scheduler_configs
from agent_scheduler.controllers.sharding.configuration import ShardingSettings
from agent_scheduler.controllers.sharding.controller import ControllerSettings, ShardingController
from agent_scheduler.kube.reflector import WatchTimes
from agent_scheduler.process.controller_flags import ControllersSettings
from agent_scheduler.process.controllers import ControllersProcess
from tests.support.embedded import EmbeddedCluster, embedded_cluster, until
from tests.support.sharded import ShardedCluster


class Rounds:
    """Counts what all controllers have begun to do, from its making on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        original = ShardingController._sync

        async def counted(controller: ShardingController) -> float:
            self.begun += 1
            return await original(controller)

        monkeypatch.setattr(ShardingController, "_sync", counted)

    async def go_on(self) -> None:
        """Once one that begins later than now has ended."""
        before = self.begun
        await until(lambda: self.begun >= before + 2)


class World(ShardedCluster):
    """Owner of the controller's processes."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        super().__init__(cluster.transport)
        self.cluster = cluster
        self.processes: list[ControllersProcess] = []
        self._running: list[asyncio.Task[int]] = []

    # ---- the controller

    def settings(
        self,
        *,
        configs: str = DEFAULT_SCHEDULER_CONFIGS,
        period: float = 60.0,
        trigger: bool = True,
        elect: bool = False,
        retry: float = 0.1,
    ) -> ControllersSettings:
        return ControllersSettings(
            enabled=("sharding",),
            kubeconfig="",
            election=LeaderElection(
                leader_elect=elect,
                lease_duration=2,
                renew_deadline=1.0,
                retry_period=0.1,
                resource_name="controllers",
                resource_namespace="default",
            ),
            serving=Serving(port=0),
            logging=Logging(),
            sharding=ControllerSettings(
                flags=ShardingSettings(parse_scheduler_configs(configs).plan, period, trigger, "the flags"),
                lease_namespace="default",
                fence=0.1,
                debounce=0.02,
                retry=retry,
                watch_times=WatchTimes(),
            ),
        )

    def start(self, **settings: Any) -> ControllersProcess:
        process = ControllersProcess(
            self.settings(**settings),
            **self.cluster.way(),
            identity=f"c{len(self.processes)}",
        )
        self.take(process)
        return process

    def take(self, process: ControllersProcess) -> None:
        """Run it until the end of the world."""
        self.processes.append(process)
        self._running.append(asyncio.create_task(process.run(signals=False)))

    async def stop(self, process: ControllersProcess) -> int:
        """Its exit code."""
        process.stop()
        return await asyncio.wait_for(self._running[self.processes.index(process)], 20)

    async def end(self) -> None:
        for process in self.processes:
            assert await self.stop(process) == 0

    async def planned_again(self, times: int) -> None:
        """Once the last of them has planned so often from now on, as it does while something waits."""
        plans = "agent_scheduler_sharding_plan_duration_seconds_count"
        before = self.metric(plans)
        await until(lambda: self.metric(plans) >= before + times)

    def metric(self, name: str, *, of: int = -1, **labels: str) -> float:
        """Sum of the samples called `name` that have `labels`."""
        text = self.processes[of].metrics.exposition()[0].decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


@asynccontextmanager
async def world(**server: Any) -> AsyncIterator[World]:
    """Its controllers end in order, with exit code 0, and no two shards of theirs ever overlapped."""
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
