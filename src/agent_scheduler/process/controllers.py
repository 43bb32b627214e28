"""Builds a process of controllers from its settings, runs it, and shuts it down in order.

    start:  endpoint ─> transport ─> watching ─> synced ─> [lease] ─> missed changes are listed ─> working
    end:    SIGTERM or SIGINT ─> the write in progress ends ─> lease released ─> exit 0

The exit codes are those of `agent-scheduler run`: 0 after a signal, 1 after a failure or the loss of the lease, 2 for
unusable flags, including a port that is in use.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from agent_scheduler import __version__
from agent_scheduler.controllers.jobs.controller import JobController
from agent_scheduler.controllers.podgroups.controller import PodGroupController
from agent_scheduler.controllers.queues.controller import QueueController
from agent_scheduler.controllers.reconciling import Reconciler, Reconciling
from agent_scheduler.controllers.sharding.controller import ShardingController
from agent_scheduler.controllers.sharding.reports import ShardingReports
from agent_scheduler.process.base import Process, run_to_end
from agent_scheduler.process.leading import elector_of, lead
from agent_scheduler.serving.health import SILENT, Check, named
from agent_scheduler.serving.http import server_of
from agent_scheduler.serving.sources import Sources
from agent_scheduler.telemetry.controllers import ControllersMetrics
from agent_scheduler.telemetry.pauses import GcPolicy
from kube_client.leases import Leases
from kube_client.recorder import EventRecorder
from kube_client.retry import Timing
from kube_client.transport import Endpoint, FencedTransport, Transport

from .controller_flags import JOB, PODGROUP, QUEUE, SHARDING, ControllersSettings

#: The reportingController of events about the lease, and of controllers without a name of their own.
NAME = "agent-scheduler-controllers"
#: The reportingController of the sharding controller.
_SHARDING_NAME = "agent-scheduler-sharding"
#: Watches have their own connections; pods of several Jobs are created simultaneously, and groups beside them, lists,
#: lease and events.
_CONNECTIONS = 48
_EVENTS_QPS, _EVENTS_BURST = 10.0, 50
#: Seconds for the write in progress at shutdown, and for the last events.
_GRACE = 10.0
_EVENTS_GRACE = 2.0


class ControllersProcess(Process):
    """A process that runs controllers."""

    metrics: ControllersMetrics

    def __init__(
        self,
        settings: ControllersSettings,
        *,
        endpoint: Endpoint | None = None,
        transport: Transport | None = None,
        timing: Timing | None = None,
        identity: str = "",
        abort: Callable[[int], object] = os._exit,
    ) -> None:
        """Build the process; the other arguments are as for `Process`. Raises KubeConfigError."""
        super().__init__(
            "controllers",
            kubeconfig=settings.kubeconfig,
            endpoint=endpoint,
            transport=transport,
            timing=timing,
            identity=identity,
            abort=abort,
        )
        self._settings = settings
        self._leading = False
        self.metrics = ControllersMetrics(version=__version__)
        self.metrics.families.read_from(self)
        #: The enabled controllers, in groups that share their watches; set while `run` runs.
        self._running: list[Reconciling] = []
        self.sharding: ShardingController | None = None
        self.queues: QueueController | None = None

    # ---- sources of metrics

    @property
    def reconciles_waiting(self) -> Mapping[str, float]:
        return {name: count for each in self._running for name, count in each.waiting.items()}

    @property
    def queue_counts(self) -> Mapping[str, Mapping[str, int]]:
        """The number of groups by queue and phase."""
        return self.queues.counts if self.queues is not None else {}

    @property
    def is_synced(self) -> bool:
        return bool(self._running) and all(each.is_synced for each in self._running)

    async def run(self, *, signals: bool = True) -> int:
        """Work until stopped. Return the exit code. With `signals`, SIGTERM and SIGINT stop the process."""
        return await run_to_end(self._run, stop=self.stop, at_once=self._overrun, signals=signals, log=self._log)

    async def _run(self) -> None:
        settings = self._settings
        async with AsyncExitStack() as stack:
            deadline = settings.election.renew_deadline
            self._remember_steps(stack, settings.state_directory, "controllers", renew_deadline=deadline)
            transport, gc_policy = self._connect(stack, connections=_CONNECTIONS)
            leases = self.leases = self._make_leases(transport)
            writes: Transport = FencedTransport(transport, lambda: leases.held) if leases.names else transport
            events = self._recorder(
                writes, controller=NAME, count=self._count_event, qps=_EVENTS_QPS, burst=_EVENTS_BURST
            )
            self.metrics.handling.tell_by(events)
            controllers = self._running = self._controllers(writes, events)
            if settings.serving.port:
                server = server_of(settings.serving, self.sources(), transport)
                await server.start()
                stack.push_async_callback(server.stop)
            self._log.info(
                "started",
                api_server=self._endpoint.base_url,
                source=self._endpoint.source,
                controllers=list(settings.enabled),
            )
            async with asyncio.TaskGroup() as tasks:
                watching = [tasks.create_task(each.watch()) for each in controllers]
                working = tasks.create_task(self._work_when_synced(controllers, events, gc_policy, writes))
                stopping = tasks.create_task(self._stopping.wait())
                await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not working.done():
                    await self._wind_down(controllers, working)
                stopping.cancel()
                for task in watching:
                    task.cancel()
            self._log.info("stopped")

    async def _wind_down(self, controllers: Sequence[Reconciling], working: asyncio.Task[None]) -> None:
        """Let the writes in progress end within the grace period."""
        self._log.info("stopping", grace_seconds=_GRACE)
        for each in controllers:
            each.stop()
        if self._leading:
            await asyncio.wait({working}, timeout=_GRACE)
        working.cancel()
        await asyncio.wait({working})

    async def _work_when_synced(
        self, controllers: Sequence[Reconciling], events: EventRecorder, gc_policy: GcPolicy | None, writes: Transport
    ) -> None:
        for each in controllers:
            await each.synced()
        if self.sharding is not None:
            self.sharding.start()
        frozen = gc_policy.freeze() if gc_policy is not None else 0
        self._log.info("synced", frozen=frozen)

        async def work() -> None:
            self._leading = True
            try:
                async with asyncio.TaskGroup() as tasks:
                    recording = tasks.create_task(events.run())
                    async with asyncio.TaskGroup() as leading:
                        for each in controllers:
                            leading.create_task(each.lead())
                    await events.drain(_EVENTS_GRACE)
                    recording.cancel()
            finally:
                self._leading = False

        if not self.leases.names:
            await work()
            return
        await lead(
            self.leases,
            work,
            status=self.metrics.leader_election_master_status.labels,
            overrun=self._overrun,
            log=self._log,
            events=self._recorder(writes, controller=NAME, count=self._count_event),
        )

    # ---- parts

    def _count_event(self, what: str) -> None:
        self.metrics.events_total.labels(what).inc()

    def _controllers(self, transport: Transport, events: EventRecorder) -> list[Reconciling]:
        """Create the enabled controllers."""
        enabled, timing = self._settings.enabled, self._timing
        reconcilers: list[Reconciler] = []
        if QUEUE in enabled:
            self.queues = QueueController(self._settings.queue, transport=transport, events=events, timing=timing)
            reconcilers.append(self.queues)
        if PODGROUP in enabled:
            reconcilers.append(PodGroupController(self._settings.podgroup, transport=transport, timing=timing))
        if JOB in enabled:
            reconcilers.append(JobController(self._settings.job, transport=transport, events=events, timing=timing))
        # It reads pods in its own way, so it has its own watches.
        sharding: list[Reconciler] = []
        if SHARDING in enabled:
            reports = ShardingReports(
                self.metrics,
                events=events,
                controller=_SHARDING_NAME,
                clock=timing.clock,
                now=lambda: timing.now().timestamp(),
            )
            self.sharding = ShardingController(
                self._settings.sharding, transport=transport, reports=reports, timing=timing
            )
            sharding.append(self.sharding)
        return [
            Reconciling(each, transport=transport, metrics=self.metrics, timing=timing)
            for each in (sharding, reconcilers)
            if each
        ]

    def _make_leases(self, transport: Transport) -> Leases:
        election = self._settings.election
        if not election.leader_elect:
            return Leases({}, identity=self._identity)
        elector = elector_of(
            election,
            transport,
            namespace=election.resource_namespace,
            name=election.resource_name,
            identity=self._identity,
            namespace_from=self._settings.namespace_from,
            timing=self._lease_timing,
            on_new_leader=lambda identity: self._log.info("leader", identity=identity),
        )
        return Leases({election.resource_name: elector}, identity=self._identity)

    def sources(self) -> Sources:
        """Return the content of the HTTP server."""
        return Sources(
            metrics=self.metrics.exposition,
            configuration=lambda: {
                "controllers": list(self._settings.enabled),
                **({"sharding": _shown(self.sharding)} if self.sharding is not None else {}),
                **({"queue": msgspec.to_builtins(self._settings.queue)} if QUEUE in self._settings.enabled else {}),
                **({"job": msgspec.to_builtins(self._settings.job)} if JOB in self._settings.enabled else {}),
                **(
                    {"podgroup": msgspec.to_builtins(self._settings.podgroup)}
                    if PODGROUP in self._settings.enabled
                    else {}
                ),
            },
            ready=(
                Check("sync", lambda: None if self.is_synced else "not synced yet"),
                Check("kinds", lambda: named("the API server lacks", _all(each.missing for each in self._running))),
                Check("informer-watch", lambda: named(SILENT, _all(each.stale for each in self._running))),
                Check("shutdown", lambda: "shutting down" if self._stopping.is_set() else None),
            ),
            live=(Check("leaderElection", self.leases.problem),),
        )


def _all(lists: Iterable[Sequence[str]]) -> list[str]:
    return sorted({name for each in lists for name in each})


def _shown(controller: ShardingController) -> Mapping[str, Any]:
    """Return the effective settings for display."""
    settings = controller.effective.settings
    if settings is None:
        return {"problem": controller.effective.problem}
    return {
        "source": settings.source,
        "problem": controller.effective.problem,
        "shardSyncPeriod": settings.sync_period,
        "enableNodeEventTrigger": settings.event_trigger,
        "plan": msgspec.to_builtins(settings.plan),
    }
