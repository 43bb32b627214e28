"""The embedded cluster and this scheduler, as separate processes that are started for one run.

So nothing is left from an earlier run, and both sides are under control: the cluster creates its nodes itself, and the
scheduler can be started late and stopped early.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kube_client.auth import load_endpoint
from kube_client.http1 import Http1Transport
from kube_client.transport import Endpoint, Transport

from . import manifests, real_plane
from .install import kubeconfig_of
from .measure import Meter
from .model import Case, Nodes, Tuning
from .processes import Child, child, free_port
from .requests import answers, create_all
from .site import NODES

#: Seconds until a process must be ready, without the time for its nodes.
_START_SECONDS = 120.0
#: A lower bound of the nodes per second that a cluster creates and a scheduler reads.
_NODES_A_SECOND = 200.0
#: Installs the scheduler and returns its kubeconfig; without it the scheduler is an administrator.
Install = Callable[[Transport, Path], Awaitable[Path]]


def configuration(tuning: Tuning, scheduler_name: str, *, leads: bool = False) -> dict[str, Any]:
    """Return the scheduler's configuration file, without rate limits, so that all writes are counted.

    `leads`: whether it has to acquire a lease first.
    """
    profile: dict[str, Any] = {"schedulerName": scheduler_name, **tuning.profile}
    if tuning.strategy is not None:
        args = {"scoringStrategy": {"type": tuning.strategy}}
        profile["pluginConfig"] = [{"name": "NodeResourcesFit", "args": args}]
    return {
        "apiVersion": "agent-scheduler/v1",
        "kind": "SchedulerConfiguration",
        "profiles": [profile],
        "leaderElection": {"leaderElect": leads},
        "workerCount": tuning.workers,
        "conflictPolicy": tuning.policy,
        "statusWrites": {"qps": 0},
        "events": {"qps": 0} if tuning.events else {"enabled": False},
        "logging": {"level": "warning"},
        **({"featureGates": dict(tuning.gates)} if tuning.gates else {}),
        **({"batch": dict(tuning.batch)} if tuning.batch is not None else {}),
    }


class EmbeddedSite:
    """A `Site`, created by `embedded`, which owns its processes."""

    selector: dict[str, str] | None = None
    ours = True

    def __init__(
        self,
        case: Case,
        *,
        cluster: Child,
        transport: Http1Transport,
        scheduler_name: str,
        kubelets: bool,
        folder: Path,
        arguments: Sequence[str],
    ) -> None:
        self.transport: Transport = transport
        self.scheduler_name = scheduler_name
        self.kubelets = kubelets
        self.all_events = case.tuning.events
        self.meter = Meter(server=[cluster.pid])
        self._arguments = arguments
        self._nodes = case.nodes.count
        self._folder = folder
        self._stack = AsyncExitStack()
        self._running = [cluster]

    async def start_scheduler(self) -> None:
        if len(self._running) == 1:
            started = await self._stack.enter_async_context(
                scheduler(self._arguments, folder=self._folder, seconds=_seconds(self._nodes))
            )
            process, self.meter.source = started
            self.meter.scheduler = [process.pid]
            self._running.append(process)

    async def stop_scheduler(self) -> None:
        del self._running[1:]
        self.meter.source = None
        await self._stack.aclose()

    async def died(self) -> None:
        tasks = [asyncio.create_task(each.died()) for each in self._running]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()


def scheduler(
    arguments: Sequence[str], *, folder: Path, name: str = "scheduler", seconds: float = _START_SECONDS
) -> AbstractAsyncContextManager[tuple[Child, Transport]]:
    """Run `agent-scheduler run ARGUMENTS`, as `component` does."""
    return component("run", arguments, folder=folder, name=name, seconds=seconds)


@asynccontextmanager
async def component(
    command: str, arguments: Sequence[str], *, folder: Path, name: str, seconds: float = _START_SECONDS
) -> AsyncIterator[tuple[Child, Transport]]:
    """Run `agent-scheduler COMMAND ARGUMENTS`; yield it and a transport to its HTTP server once it is ready.

    Raises ProcessError.
    """
    port = free_port()
    async with child(
        name, [command, *arguments, "--port", str(port)], log=folder / f"{name}.log", grace=20.0
    ) as process:
        probe = Http1Transport(Endpoint(f"http://127.0.0.1:{port}"), pool_size=2)
        try:
            await process.ready(lambda: answers(probe), seconds=seconds)
            yield process, probe
        finally:
            await probe.close()


@asynccontextmanager
async def embedded(
    case: Case,
    *,
    scheduler_name: str = "agent-scheduler",
    cluster_arguments: Sequence[str] | None = None,
    scheduler_arguments: Sequence[str] | None = None,
    install: Install | None = None,
    like_real: bool = False,
) -> AsyncIterator[EmbeddedSite]:
    """Start a cluster with the case's nodes; the caller starts the scheduler.

    Without `cluster_arguments` there are kubelets if the case's pods must run. `scheduler_arguments` replace the
    configuration file with the case's tuning. `like_real`: see `real_plane`. Raises ProcessError, and RequestFailed.
    """
    if cluster_arguments is None:
        cluster_arguments = () if case.runs_pods else ("--no-kubelets",)
    with TemporaryDirectory(prefix="agent-scheduler-bench-") as name:
        folder = Path(name)
        if like_real:
            cluster_arguments = (*cluster_arguments, *real_plane.cluster_arguments(folder))
            install = kubeconfig_of
        async with cluster(case.nodes, folder=folder, arguments=cluster_arguments) as (process, transport):
            kubeconfig = folder / "kubeconfig"
            if install is not None:
                kubeconfig = await install(transport, kubeconfig)
            if scheduler_arguments is None:
                file = folder / "scheduler.json"
                file.write_text(json.dumps(configuration(case.tuning, scheduler_name, leads=like_real)))
                scheduler_arguments = ("--config", str(file))
            site = EmbeddedSite(
                case,
                cluster=process,
                transport=transport,
                scheduler_name=scheduler_name,
                kubelets="--no-kubelets" not in cluster_arguments,
                folder=folder,
                arguments=("--kubeconfig", str(kubeconfig), *scheduler_arguments),
            )
            try:
                yield site
            finally:
                await site.stop_scheduler()


@asynccontextmanager
async def cluster(
    nodes: Nodes, *, folder: Path, arguments: Sequence[str]
) -> AsyncIterator[tuple[Child, Http1Transport]]:
    """Run `agent-scheduler cluster ARGUMENTS` with these nodes; an administrator's kubeconfig is in `folder`."""
    kubeconfig = folder / "kubeconfig"
    command = [
        *("cluster", "--port", "0", "--kubeconfig-out", str(kubeconfig)),
        *("--nodes", "0" if nodes.given else str(nodes.count)),
        *("--node-cpu", nodes.cpu, "--node-memory", nodes.memory, "--node-pods", str(nodes.pods)),
        *arguments,
    ]
    async with child("cluster", command, log=folder / "cluster.log", grace=20.0) as process:

        async def serving() -> bool:
            return kubeconfig.exists()

        await process.ready(serving, seconds=_seconds(nodes.count))
        transport = Http1Transport(load_endpoint(kubeconfig=kubeconfig), pool_size=160)
        try:
            if nodes.given:
                # Without the taint, which would reject pods that do not tolerate it.
                given = ({**manifests.given_node(spec), "spec": {}} for spec in nodes.given)
                await create_all(transport, NODES, map(manifests.encode, given))
            yield process, transport
        finally:
            await transport.close()


def _seconds(nodes: int) -> float:
    return _START_SECONDS + nodes / _NODES_A_SECOND
