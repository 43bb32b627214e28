"""One run of the demo: a cluster, a scheduler, a load, and what came of it.

The run ends when nothing more can come: every pod is bound, or those that are not fit nowhere by the audit and
no running pod will make room. Faults end it early, with the reason in the outcome: a child that dies, time that
is up.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from agent_scheduler.kube.auth import load_endpoint
from agent_scheduler.kube.errors import RequestFailed
from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.transport import Endpoint, Transport

from .asking import ask, first_of
from .audit import Audit, audit_cluster
from .install import install, write_kubeconfig
from .load import LoadResult, PodLoad, create_nodes
from .machine import machine
from .measure import Sample, Sampler, Usage, rate, usage
from .observe import Observation, Observer, node_fill, percentiles
from .outcome import Outcome
from .processes import Child, ProcessError, child, free_port
from .specs import NodeSpec, Refusals, Workload
from .view import Frame, View

NAMESPACE = "agents"
#: Between two samples, seconds.
_TICK = 0.25
#: How long nothing must have been bound before the run is taken to be at rest, seconds.
_QUIET = 1.0
#: How long pods that fit may stay unbound at rest before that counts as the scheduler's failure: longer than
#: the longest backoff of a scheduler, 10 s.
_STUCK = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What one run is to do. `scheduler_arguments` are passed on to the scheduler as they are."""

    workload: Workload
    #: The simulated nodes; those of the workload, if it has any.
    nodes: tuple[NodeSpec, ...]
    workers: int
    scheduler_name: str
    #: Seconds for the whole run, start-up excluded.
    patience: float
    scheduler_arguments: tuple[str, ...] = ()


class _Interrupted(Exception):
    """The run cannot go on; the text is the outcome's interruption."""


async def run(settings: Settings, *, view: View, folder: Path) -> Outcome:
    """Runs it. `folder` is for the children's logs and the kubeconfigs: the demo's own is an administrator's, the
    scheduler's has a token of its service account.

    Raises `ProcessError` or `RequestFailed` when it could not even begin.
    """
    config = folder / "kubeconfig"
    view.say("starting the cluster")
    arguments = ["cluster", "--port", "0", "--nodes", "0", "--kubeconfig-out", str(config)]
    # Tokens over plain HTTP on the loopback interface: the demo measures scheduling, not TLS.
    arguments += ["--authorization-mode", "RBAC", "--no-tls"]
    async with child("cluster", arguments, log=folder / "cluster.log") as cluster:

        async def written() -> bool:
            return config.exists()

        await cluster.ready(written, seconds=30)
        transport = Http1Transport(load_endpoint(kubeconfig=config))
        try:
            await _prepare(transport, cluster, settings.nodes)
            own = folder / "scheduler.kubeconfig"
            write_kubeconfig(config, await install(transport), own)
            view.say(f"{len(settings.nodes):,} nodes created; starting the scheduler")
            return await _with_scheduler(settings, cluster, transport, view=view, folder=folder, config=own)
        finally:
            await transport.close()


async def _prepare(transport: Transport, cluster: Child, nodes: Sequence[NodeSpec]) -> None:
    async def answers() -> bool:
        return await _is_ok(transport, "/readyz")

    await cluster.ready(answers, seconds=30)
    body = b'{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"%s"}}' % NAMESPACE.encode()
    await ask(transport, "POST", "/api/v1/namespaces", body=body)
    await create_nodes(transport, nodes)


async def _is_ok(transport: Transport, path: str) -> bool:
    try:
        await ask(transport, "GET", path)
    except RequestFailed:
        return False
    return True


async def _with_scheduler(
    settings: Settings, cluster: Child, transport: Transport, *, view: View, folder: Path, config: Path
) -> Outcome:
    port = free_port()
    arguments = [
        "run",
        *("--kubeconfig", str(config)),
        *("--scheduler-name", settings.scheduler_name),
        *("--scheduler-worker-count", str(settings.workers)),
        *("--port", str(port)),
        *("--log-level", "warning"),
        # It is alone in its cluster.
        "--leader-elect=false",
        *settings.scheduler_arguments,
    ]
    async with child("scheduler", arguments, log=folder / "scheduler.log") as scheduler:
        metrics = Http1Transport(Endpoint(f"http://127.0.0.1:{port}"), pool_size=2)

        async def answers() -> bool:
            return await _is_ok(metrics, "/readyz")

        try:
            await scheduler.ready(answers, seconds=60)
            return await _Run(settings, cluster, scheduler, transport, metrics, view).outcome()
        finally:
            await metrics.close()


class _Run:
    """The part of a run in which pods are created and bound."""

    def __init__(
        self,
        settings: Settings,
        cluster: Child,
        scheduler: Child,
        transport: Transport,
        metrics: Transport,
        view: View,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._scheduler = scheduler
        self._transport = transport
        self._view = view
        clock = time.monotonic
        self._clock = clock
        self._load = PodLoad(
            transport, namespace=NAMESPACE, scheduler_name=settings.scheduler_name, clock=clock
        )
        self._observer = Observer(
            transport, namespace=NAMESPACE, load=self._load.result, pods=settings.workload.pods, clock=clock
        )
        self._sampler = Sampler(
            clock=clock, metrics=metrics, scheduler_pid=scheduler.pid, server_pid=cluster.pid
        )
        self._loaded = False
        self._lives = any(pod.life is not None for pod in settings.workload.pods)

    @property
    def _result(self) -> LoadResult:
        return self._load.result

    @property
    def _seen(self) -> Observation:
        return self._observer.observation

    async def outcome(self) -> Outcome:
        interruption = ""
        scheduler_before: Usage | None = None
        server_before: Usage | None = None
        try:
            async with asyncio.TaskGroup() as group:
                watching = [
                    group.create_task(self._observer.run()),
                    group.create_task(self._scheduler.died()),
                    group.create_task(self._cluster.died()),
                ]
                await self._observer.ready.wait()
                scheduler_before, server_before = usage(self._scheduler.pid), usage(self._cluster.pid)
                self._sampler.restart()
                loading = group.create_task(self._send())
                await self._until_at_rest()
                loading.cancel()
                for task in watching:
                    task.cancel()
        except* (ProcessError, _Interrupted, RequestFailed) as errors:
            interruption = str(first_of(errors))
        scheduler_after, server_after = usage(self._scheduler.pid), usage(self._cluster.pid)
        try:
            audit = await audit_cluster(self._transport)
        except RequestFailed as error:
            audit = Audit()
            interruption = interruption or f"the audit could not be made: {error}"
        refusals = Refusals(self._settings.nodes)
        reasons = (refusals.why(pod) for pod in self._settings.workload.pods)
        return Outcome(
            workload=self._settings.workload,
            nodes=len(self._settings.nodes),
            workers=self._settings.workers,
            start=self._sampler.start,
            load=self._result,
            observation=self._seen,
            samples=self._sampler.samples,
            audit=audit,
            hopeless=dict(Counter(reason for reason in reasons if reason is not None)),
            interruption=interruption,
            scheduler_before=scheduler_before,
            scheduler_after=scheduler_after,
            server_before=server_before,
            server_after=server_after,
            machine=machine(),
        )

    async def _send(self) -> None:
        await self._load.run(self._settings.workload.pods)
        self._loaded = True

    async def _until_at_rest(self) -> None:
        """Samples and shows, until nothing more can be bound. Raises `_Interrupted` when time is up."""
        start = self._clock()
        quiet_since, last_bound = start, 0
        looked = -1.0
        while True:
            sample = await self._sample()
            now = self._clock()
            if sample.bound != last_bound or not self._loaded:
                quiet_since, last_bound = now, sample.bound
            everything = self._loaded and sample.bound >= self._result.created
            if everything and now - quiet_since >= _TICK:
                return
            if now - start > self._settings.patience:
                raise _Interrupted(
                    f"not at rest after {self._settings.patience:g} s: {sample.bound:,} of "
                    f"{len(self._settings.workload.pods):,} pods are bound"
                )
            if now - quiet_since >= _QUIET and now - looked >= _QUIET:
                looked = now
                # A pod that ends makes room, so while such pods run more may come.
                if not (self._lives and sample.running) and await self._nothing_fits():
                    return
                if not sample.running and now - quiet_since > _STUCK:
                    return
                if not self._lives and now - quiet_since > _STUCK:
                    return
            await asyncio.sleep(_TICK)

    async def _nothing_fits(self) -> bool:
        """Whether the audit would find nothing left out, and the scheduler has said of each refusal why."""
        audit = await audit_cluster(self._transport)
        return not audit.left_out and not any(why.startswith("(") for why in audit.refused)

    async def _sample(self) -> Sample:
        seen = self._seen
        sample = await self._sampler.take(
            created=self._result.created, bound=seen.bound, running=seen.running, ended=seen.ended
        )
        samples = self._sampler.samples
        before = samples[-9:-1] or samples[-1:]
        seconds = max(sample.at - before[0].at, 1e-9)
        rates = [
            (later.bound - earlier.bound) / max(later.at - earlier.at, 1e-9)
            for earlier, later in pairwise(samples[-72:])
        ]
        p50, p90, p99 = percentiles(seen.created_to_bound[-20_000:])
        self._view.show(
            Frame(
                title=self._settings.workload.name,
                total=len(self._settings.workload.pods),
                sample=sample,
                bound_rate=rate(samples),
                created_rate=(sample.created - before[0].created) / seconds if len(samples) > 1 else 0.0,
                latencies=(p50, p90, p99),
                fill=node_fill(seen, self._settings.nodes),
                history=rates,
                errors=sum(self._result.errors.values()),
            )
        )
        return sample
