"""The embedded cluster and this scheduler, as processes of their own that are started for one run.

So nothing is left of the run before, and both sides are ours: the cluster makes its nodes itself, and the scheduler
can be started late and stopped early.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from agent_scheduler.demo.asking import ask
from agent_scheduler.demo.processes import Child, child, free_port
from agent_scheduler.kube.auth import load_endpoint
from agent_scheduler.kube.errors import RequestFailed
from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.transport import Endpoint, Transport

from . import manifests
from .load import create_all
from .meters import Meter
from .model import Case, Tuning
from .site import NODES

#: Seconds until a process must be ready, before those that its nodes take.
_START_SECONDS = 120.0
#: A cluster makes, and a scheduler reads, far more nodes than this a second.
_NODES_A_SECOND = 200.0


def configuration(tuning: Tuning, scheduler_name: str) -> dict[str, Any]:
    """The scheduler's configuration file. What its budgets would hold back is written at once, to be counted."""
    profile: dict[str, Any] = {"schedulerName": scheduler_name}
    if tuning.strategy is not None:
        args = {"scoringStrategy": {"type": tuning.strategy}}
        profile["pluginConfig"] = [{"name": "NodeResourcesFit", "args": args}]
    return {
        "apiVersion": "agent-scheduler/v1",
        "kind": "SchedulerConfiguration",
        "profiles": [profile],
        "leaderElection": {"leaderElect": False},
        "workerCount": tuning.workers,
        "statusWrites": {"qps": 0},
        "events": {"qps": 0} if tuning.events else {"enabled": False},
        "logging": {"level": "warning"},
    }


class EmbeddedSite:
    """A `Site`. Made by `embedded`, which owns its processes."""

    selector: dict[str, str] | None = None
    ours = True

    def __init__(
        self,
        case: Case,
        *,
        transport: Http1Transport,
        cluster: Child,
        folder: Path,
        scheduler_name: str,
        config: Mapping[str, Any],
        arguments: Sequence[str],
    ) -> None:
        self.transport: Transport = transport
        self.scheduler_name = scheduler_name
        self.meter = Meter(server=[cluster.pid])
        #: Of the scheduler's own HTTP server, once it is started.
        self.port = 0
        self._config = config
        self._arguments = arguments
        self._case = case
        self._cluster = cluster
        self._folder = folder
        self._stack = AsyncExitStack()
        self._scheduler: Child | None = None

    async def start_scheduler(self) -> None:
        if self._scheduler is not None:
            return
        folder, port = self._folder, free_port()
        file = folder / "scheduler.json"
        file.write_text(json.dumps(self._config))
        arguments = [
            *("run", "--kubeconfig", str(folder / "kubeconfig")),
            *("--config", str(file), "--port", str(port), *self._arguments),
        ]
        scheduler = await self._stack.enter_async_context(
            child("scheduler", arguments, log=folder / "scheduler.log", grace=20.0)
        )
        probe = Http1Transport(Endpoint(f"http://127.0.0.1:{port}"), pool_size=2)
        self._stack.push_async_callback(probe.close)
        self.meter.scheduler = [scheduler.pid]
        self.meter.use(probe)
        self._scheduler, self.port = scheduler, port

        async def ready() -> bool:
            try:
                await ask(probe, "GET", "/readyz")
            except RequestFailed:
                return False
            return True

        await scheduler.ready(ready, seconds=_START_SECONDS + self._case.nodes.count / _NODES_A_SECOND)

    async def stop_scheduler(self) -> None:
        self._scheduler = None
        self.meter.use(None)
        await self._stack.aclose()

    async def died(self) -> None:
        tasks = [asyncio.create_task(self._cluster.died())]
        if self._scheduler is not None:
            tasks.append(asyncio.create_task(self._scheduler.died()))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()


@asynccontextmanager
async def embedded(
    case: Case,
    *,
    folder: Path,
    scheduler_name: str = "agent-scheduler",
    config: Mapping[str, Any] | None = None,
    cluster_arguments: Sequence[str] = (),
    scheduler_arguments: Sequence[str] = (),
) -> AsyncIterator[EmbeddedSite]:
    """A cluster with the case's nodes; the scheduler is started by whoever asks for it. Logs go to `folder`.

    `config` replaces the scheduler's configuration that the case asks for; the arguments are added to the commands'.
    """
    nodes, kubeconfig = case.nodes, folder / "kubeconfig"
    arguments = [
        *("cluster", "--port", "0", "--no-kubelets", "--kubeconfig-out", str(kubeconfig)),
        *("--nodes", "0" if nodes.given else str(nodes.count)),
        *("--node-cpu", nodes.cpu, "--node-memory", nodes.memory, "--node-pods", str(nodes.pods)),
        *cluster_arguments,
    ]
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            child("cluster", arguments, log=folder / "cluster.log", grace=20.0)
        )

        async def serving() -> bool:
            return kubeconfig.exists()

        await cluster.ready(serving, seconds=_START_SECONDS + nodes.count / _NODES_A_SECOND)
        transport = Http1Transport(load_endpoint(kubeconfig=kubeconfig), pool_size=160)
        stack.push_async_callback(transport.close)
        site = EmbeddedSite(
            case,
            transport=transport,
            cluster=cluster,
            folder=folder,
            scheduler_name=scheduler_name,
            config=configuration(case.tuning, scheduler_name) if config is None else config,
            arguments=scheduler_arguments,
        )
        stack.push_async_callback(site.stop_scheduler)
        if nodes.given:
            # The taint would keep pods away that know nothing of benchmarks.
            bodies = (manifests.encode(untainted(manifests.given_node(spec))) for spec in nodes.given)
            await create_all(transport, NODES, bodies)
        yield site


def untainted(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "spec": {}}
