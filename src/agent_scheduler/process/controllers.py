"""Builds a process of controllers from its settings, runs it, and ends it in good order.

    start:  endpoint ─> transport ─> watching ─> synced ─> [lease] ─> what has been missed is listed ─> working
    end:    SIGTERM or SIGINT ─> the write under way ends ─> lease released ─> exit 0

Exit codes are those of `agent-scheduler run`: 0 after a signal, 1 when something broke or the lease was lost, 2 for
flags that cannot be used, a port that is taken among them.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec

from agent_scheduler import __version__
from agent_scheduler.controllers.sharding.controller import ShardingController
from agent_scheduler.controllers.sharding.reports import Reports
from agent_scheduler.kube.auth import load_endpoint
from agent_scheduler.kube.budget import Budget
from agent_scheduler.kube.errors import StoreWentBack
from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.lease import LeaderElector, boottime
from agent_scheduler.kube.leases import LeaseLost, Leases
from agent_scheduler.kube.recorder import EventRecorder
from agent_scheduler.kube.retry import REAL, Timing
from agent_scheduler.kube.transport import Endpoint, FencedTransport, Transport
from agent_scheduler.process.leading import (
    end_on_signals,
    lead,
    leader_events,
    lease_config,
)
from agent_scheduler.serving.configured import server_of
from agent_scheduler.serving.health import SILENT, Check, named
from agent_scheduler.serving.sources import ServingError, Sources
from agent_scheduler.telemetry.gcpolicy import GcPolicy
from agent_scheduler.telemetry.logs import get_logger
from agent_scheduler.telemetry.looplag import LoopLag
from agent_scheduler.telemetry.sharding import ShardingMetrics

from .controller_flags import ControllersSettings

#: reportingController of events.
NAME = "agent-scheduler-sharding"
#: Watches keep connections of their own; writes go one after another, and lists, lease and events beside them.
_CONNECTIONS = 8
#: Events a second, and how many may be saved up.
_EVENTS = (10.0, 50)
#: Seconds that the write under way, and the last events, get at the end.
_GRACE = 10.0
_EVENTS_GRACE = 2.0


class ControllersProcess:
    """One process's worth of controllers. `run` may be called once."""

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
        """`endpoint` None: found as `kube.auth` says. With a `transport` there is none: requests go there, this is not
        the only one in its process, and `timing` is where its time comes from. `abort` ends the process at once.

        Raises KubeConfigError.
        """
        if endpoint is None and transport is None:
            endpoint = load_endpoint(kubeconfig=Path(settings.kubeconfig) if settings.kubeconfig else None)
        self._settings = settings
        self._endpoint = endpoint or Endpoint("", source="given transport")
        self._transport = transport
        self._timing = timing or REAL
        self._lease_timing = timing or Timing(clock=boottime)
        self._identity = identity or f"{socket.gethostname()}_{uuid.uuid4()}"
        self._abort = abort
        self._log = get_logger("controllers")
        self._stopping = asyncio.Event()
        self._leading = False
        self.metrics = ShardingMetrics(version=__version__)
        self.leases = Leases({}, identity=self._identity)
        #: Set while `run` runs.
        self.sharding: ShardingController | None = None

    def stop(self) -> None:
        """Begin the orderly end; `run` returns when it is done."""
        self._stopping.set()

    async def run(self, *, signals: bool = True) -> int:
        """Work until stopped. Returns the exit code. `signals`: see `end_on_signals`."""
        if signals:
            end_on_signals(self.stop, lambda: self._abort(1), self._log)
        code = 0
        try:
            await self._run()
        except* LeaseLost as lost:
            self._log.error("lease lost", problem="; ".join(str(error) for error in lost.exceptions))
            code = 1
        except* StoreWentBack as back:
            self._log.error("store went back", problem="; ".join(str(error) for error in back.exceptions))
            code = 1
        except* ServingError as refused:
            self._log.error("cannot serve", problem="; ".join(str(error) for error in refused.exceptions))
            code = 2
        except* Exception as failed:
            self._log.error("stopped by a failure", error=repr(failed), exc_info=failed)
            code = 1
        return code

    async def _run(self) -> None:
        settings = self._settings
        async with AsyncExitStack() as stack:
            transport = self._transport
            gc_policy: GcPolicy | None = None
            if transport is None:
                gc_policy = GcPolicy(self.metrics)
                gc_policy.start()
                stack.callback(gc_policy.stop)
                lag = LoopLag(self.metrics.loop_lag_seconds.labels().observe, loop=asyncio.get_running_loop())
                lag.start()
                stack.callback(lag.stop)
                transport = Http1Transport(
                    self._endpoint,
                    pool_size=_CONNECTIONS,
                    user_agent=f"agent-scheduler/{__version__}",
                    observe=self.metrics.api_request,
                )
            stack.push_async_callback(transport.close)
            leases = self.leases = self._make_leases(transport)
            writes: Transport = FencedTransport(transport, lambda: leases.held) if leases.names else transport
            events = self._recorder(writes)
            controller = self.sharding = self._sharding(writes, events)
            if settings.serving.port:
                server = server_of(settings.serving, self.sources(controller), transport)
                await server.start()
                stack.push_async_callback(server.stop)
            self._log.info(
                "started",
                api_server=self._endpoint.base_url,
                source=self._endpoint.source,
                controllers=list(settings.enabled),
            )
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(controller.watch())
                working = tasks.create_task(self._work_when_synced(controller, events, gc_policy, writes))
                stopping = tasks.create_task(self._stopping.wait())
                await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not working.done():
                    await self._wind_down(controller, working)
                stopping.cancel()
                watching.cancel()
            self._log.info("stopped")

    async def _wind_down(self, controller: ShardingController, working: asyncio.Task[None]) -> None:
        """Let the write end that is under way, within the grace."""
        self._log.info("stopping", grace_seconds=_GRACE)
        controller.stop()
        if self._leading:
            await asyncio.wait({working}, timeout=_GRACE)
        working.cancel()
        await asyncio.wait({working})

    async def _work_when_synced(
        self,
        controller: ShardingController,
        events: EventRecorder,
        gc_policy: GcPolicy | None,
        writes: Transport,
    ) -> None:
        await controller.synced()
        frozen = gc_policy.freeze() if gc_policy is not None else 0
        self._log.info("synced", frozen=frozen)

        async def work() -> None:
            self._leading = True
            try:
                async with asyncio.TaskGroup() as tasks:
                    recording = tasks.create_task(events.run())
                    await tasks.create_task(controller.lead())
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
            overrun=lambda: self._abort(1),
            log=self._log,
            events=leader_events(
                writes,
                controller=NAME,
                identity=self._identity,
                timing=self._timing,
                count=lambda what: self.metrics.events_total.labels(what).inc(),
            ),
        )

    # ---- parts

    def _recorder(self, transport: Transport) -> EventRecorder:
        qps, burst = _EVENTS
        return EventRecorder(
            transport,
            controller=NAME,
            instance=self._identity,
            budget=Budget(qps=qps, burst=burst, timing=self._timing),
            timing=self._timing,
            count=lambda what: self.metrics.events_total.labels(what).inc(),
        )

    def _sharding(self, transport: Transport, events: EventRecorder) -> ShardingController:
        reports = Reports(
            self.metrics,
            events=events,
            clock=self._timing.clock,
            now=lambda: self._timing.now().timestamp(),
        )
        controller = ShardingController(
            self._settings.sharding, transport=transport, reports=reports, timing=self._timing
        )
        self.metrics.families.read_from(controller)
        return controller

    def _make_leases(self, transport: Transport) -> Leases:
        election = self._settings.election
        if not election.leader_elect:
            return Leases({}, identity=self._identity)
        elector = LeaderElector(
            transport,
            lease_config(
                election,
                namespace=election.resource_namespace,
                name=election.resource_name,
                identity=self._identity,
                namespace_from=self._settings.namespace_from,
            ),
            timing=self._lease_timing,
            now=self._lease_timing.now,
            on_new_leader=lambda identity: self._log.info("leader", identity=identity),
        )
        return Leases({election.resource_name: elector}, identity=self._identity)

    def sources(self, controller: ShardingController) -> Sources:
        """What is to be told of this process."""
        return Sources(
            metrics=self.metrics.exposition,
            configuration=lambda: {
                "controllers": list(self._settings.enabled),
                "sharding": _shown(controller),
            },
            ready=(
                Check("sync", lambda: None if controller.is_synced else "not synced yet"),
                Check(
                    "nodeshards",
                    lambda: "the API server has no NodeShards" if controller.is_kind_missing else None,
                ),
                Check("informer-watch", lambda: named(SILENT, controller.stale)),
                Check("shutdown", lambda: "shutting down" if self._stopping.is_set() else None),
            ),
            live=(Check("leaderElection", self.leases.problem),),
        )


def _shown(controller: ShardingController) -> Mapping[str, Any]:
    """What is in effect, for people."""
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
