"""Builds a scheduler process from its configuration, runs it, and shuts it down in order.

    start:  endpoint ─> transport ─> fast path (watching) ─> synced ─> [leases ─> renewed ─> shard] ─> scheduling
    reload: the file has changed, or SIGHUP ─> loaded and validated as a whole ─> applied between cycles, or rejected
    end:    SIGTERM or SIGINT ─> no new decisions ─> binds in progress end ─> nodes and leases released ─> exit 0

Exit codes: 0 after a signal, 1 after a failure or the loss of the lease (a supervisor restarts the process then, with
nothing of the old leader in flight), 2 for an unusable configuration.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent_scheduler import __version__
from agent_scheduler.batch.scheduler import BatchScheduler, FastPathParts
from agent_scheduler.batch.settings import batch_settings_of
from agent_scheduler.binding.queue_admission import ALWAYS, Election
from agent_scheduler.cluster.groups import Groups
from agent_scheduler.config.load import ConfigurationSource, to_dict
from agent_scheduler.config.reload import Reloader
from agent_scheduler.config.schema import Configuration
from agent_scheduler.fastpath.scheduler import FastPath
from agent_scheduler.fastpath.settings import FastPathSettings, settings_of
from agent_scheduler.fastpath.views import PLACES
from agent_scheduler.process.base import Process, run_to_end
from agent_scheduler.process.console import ConsolePicture
from agent_scheduler.process.debugging import DebugPages
from agent_scheduler.process.leading import (
    GATES_LEASE,
    CannotLead,
    after_lease_duration,
    coordinator_of,
    elector_of,
    lead,
    leases_of,
    schedule_within,
)
from agent_scheduler.process.reports import reports_of
from agent_scheduler.serving.health import SILENT, Check, named
from agent_scheduler.serving.http import HttpServer, server_of
from agent_scheduler.serving.sources import DebugSources, Sources, logged_check
from agent_scheduler.telemetry.batch import BatchMetrics, BatchReports
from agent_scheduler.telemetry.logs import set_level
from agent_scheduler.telemetry.metrics import Metrics
from agent_scheduler.telemetry.observers import ReloadReports, ShardReports
from agent_scheduler.telemetry.pauses import GcPolicy
from kube_client.leases import Leases
from kube_client.recorder import EventRecorder
from kube_client.retry import Timing
from kube_client.transport import Endpoint, FencedTransport, Transport
from kube_client.waiting import NotListed

if TYPE_CHECKING:
    from agent_scheduler.shards.coordinator import Coordinator

#: Connections in addition to those of the fast path's writes, which therefore never wait for one: for lists, the
#: lease, and authorization reviews.
_OTHER_CONNECTIONS = 8

#: The HTTP server answers after this time at the latest, even if pods and nodes are not listed yet.
_SERVING_SECONDS = 1.0

#: The share of the shutdown grace period for binds in progress; conditions and events get the rest.
_BIND_SHARE = 0.7


def gates_turn(configuration: Configuration, transport: Transport, *, identity: str, timing: Timing) -> Election:
    """Return the turn of the process that removes queue gates: of one at a time, if others share the nodes.

    `timing` is as for `leases_of`.
    """
    sharding = configuration.sharding
    if sharding.mode == "none":
        return ALWAYS
    return elector_of(
        configuration.leader_election,
        transport,
        namespace=sharding.lease_namespace,
        name=GATES_LEASE,
        identity=identity,
        namespace_from="",
        timing=timing,
        on_new_leader=lambda _identity: None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerParts:
    """The parts of a running scheduler process."""

    #: For lists, leases and reviews; and for everything else, which is sent only while the leases are held.
    transport: Transport
    writing: Transport
    #: None if other processes share the interpreter.
    gc_policy: GcPolicy | None
    #: Those that are required for writing; none if the process has no peers.
    leases: Leases
    fast_path: FastPath
    #: The scheduler beside the fast path, if configured.
    batch: BatchScheduler | None
    #: None unless nodes are shared by shards.
    coordinator: Coordinator | None

    @property
    def schedulers(self) -> tuple[BatchScheduler | FastPath, ...]:
        """Batch comes first, so that at the end it stops giving pods to the binder."""
        return (self.fast_path,) if self.batch is None else (self.batch, self.fast_path)


class SchedulerProcess(Process):
    """A process that runs a scheduler."""

    metrics: Metrics

    def __init__(
        self,
        configuration: Configuration,
        *,
        source: ConfigurationSource | None,
        endpoint: Endpoint | None = None,
        abort: Callable[[int], object] = os._exit,
        transport: Transport | None = None,
        timing: Timing | None = None,
        identity: str = "",
    ) -> None:
        """`source` is where `configuration` was loaded from; changes of a file take effect. Raises KubeConfigError.

        Raises ConfigurationError for impossible traces. The other arguments are as for `Process`.
        """
        super().__init__(
            "runtime",
            kubeconfig=configuration.client_connection.kubeconfig,
            endpoint=endpoint,
            transport=transport,
            timing=timing,
            identity=identity,
            abort=abort,
        )
        self._configuration = configuration
        self._source = source
        self.metrics = Metrics(version=__version__)
        self.metrics.features(configuration.feature_gates)
        self._batch_settings = batch_settings_of(configuration, identity=self._identity)
        self._settings = self._settings_of(configuration)
        self._reports = reports_of(configuration, self.metrics, timing=self._timing, identity=self._identity)
        self._observer = self._reports.observer
        self._reloader = self._make_reloader()
        #: None until `run` has made them.
        self._parts: SchedulerParts | None = None

    @property
    def fast_path(self) -> FastPath | None:
        return None if self._parts is None else self._parts.fast_path

    @property
    def batch(self) -> BatchScheduler | None:
        return None if self._parts is None else self._parts.batch

    @property
    def coordinator(self) -> Coordinator | None:
        return None if self._parts is None else self._parts.coordinator

    def reload(self) -> None:
        """Load the configuration file again immediately, changed or not."""
        if self._reloader is not None:
            self._reloader.now()

    async def log_check(self) -> None:
        """Compare the state with the cluster, and log the differences."""
        debug = self.sources().debug if self._parts is not None else None
        await logged_check(None if debug is None else debug.check, self._log)

    async def run(self, *, signals: bool = True) -> int:
        """Schedule until stopped. Return the exit code.

        With `signals`, SIGTERM and SIGINT stop the process, SIGHUP reloads the file, if any, and SIGUSR2 logs a
        self-check.
        """
        has_file = self._source is not None and self._source.file is not None
        return await run_to_end(
            self._run,
            stop=self.stop,
            reload=self.reload if has_file else None,
            at_once=self._overrun,
            check=self.log_check,
            signals=signals,
            log=self._log,
        )

    def _assemble(self, stack: AsyncExitStack) -> SchedulerParts:
        """Make the parts of the process, each after those it needs. `stack` ends them."""
        configuration, batch_settings = self._configuration, self._batch_settings
        self._remember_steps(
            *(stack, configuration.state_directory, "scheduler"),
            renew_deadline=configuration.leader_election.renew_deadline,
        )

        # The connection to the API server.
        requests = self._settings.requests_at_a_time + _OTHER_CONNECTIONS
        if batch_settings is not None:
            requests += batch_settings.requests_at_a_time
        transport, gc_policy = self._connect(stack, connections=requests)

        # Leases: without them nothing is written.
        leases = leases_of(
            configuration,
            transport,
            identity=self._identity,
            timing=self._lease_timing,
            on_new_leader=lambda lease, identity: self._log.info("leader", identity=identity, lease=lease),
            source=self._source,
        )
        writing: Transport = FencedTransport(transport, lambda: leases.held) if leases.names else transport

        # The fast path, with the watches, the ledger and the binder that all schedulers of the process share.
        groups = None if batch_settings is None else Groups(schedulers=(batch_settings.scheduler_name,))
        fast_path = FastPath(
            self._settings,
            transport=writing,
            receivers=self._reports.receivers,
            timing=self._timing,
            groups=groups,
            turn=gates_turn(configuration, writing, identity=self._identity, timing=self._lease_timing),
        )

        # The batch scheduler beside it.
        batch: BatchScheduler | None = None
        if batch_settings is not None and groups is not None:
            metrics = BatchMetrics(self.metrics.families)
            batch = BatchScheduler(
                batch_settings,
                profile=fast_path.profile(batch_settings.scheduler_name),
                groups=groups,
                parts=FastPathParts(
                    cluster=fast_path.cluster,
                    binder=fast_path.binder,
                    bound_pods=fast_path.bound_pods,
                    writes=fast_path.writes,
                    evict=fast_path.evict,
                    pdbs=fast_path.pdbs,
                    shard=fast_path.shard,
                    shard_full=None if fast_path.outside is None else fast_path.outside.full,
                ),
                transport=writing,
                observer=BatchReports(metrics, self._observer, now=self._timing.now),
                timing=self._timing,
            )
            self._reports.follow(batch.waiting)

        # Once all families of metrics are made, they are read from their owner.
        self.metrics.families.read_from(fast_path)

        # The shard of nodes, if they are shared with other schedulers.
        coordinator: Coordinator | None = None
        if fast_path.shard is not None:
            coordinator = coordinator_of(
                configuration,
                writing,
                side=fast_path.shard,
                observer=ShardReports(self.metrics),
                timing=self._timing,
                lease_timing=self._lease_timing,
                times=self._settings.watch_times,
            )
        return SchedulerParts(
            transport=transport,
            writing=writing,
            gc_policy=gc_policy,
            leases=leases,
            fast_path=fast_path,
            batch=batch,
            coordinator=coordinator,
        )

    async def _run(self) -> None:
        configuration = self._configuration
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._reports.close)
            parts = self._parts = self._assemble(stack)
            self.leases, fast_path = parts.leases, parts.fast_path
            server: HttpServer | None = None
            if configuration.serving.port:
                server = server_of(configuration.serving, self.sources(), parts.transport)
                server.listen()
                stack.push_async_callback(server.stop)
            self._log.info(
                "started",
                api_server=self._endpoint.base_url,
                source=self._endpoint.source,
                schedulers=[profile.scheduler_name for profile in configuration.profiles],
                workers=configuration.worker_count,
                conflict_policy=configuration.conflict_policy,
            )
            self.metrics.config_loaded(self._timing.now().timestamp())
            async with asyncio.TaskGroup() as tasks:
                serving = None if server is None else tasks.create_task(self._serve(server, fast_path))
                reloading = None if self._reloader is None else tasks.create_task(self._reloader.run())
                watching = tasks.create_task(fast_path.watch())
                leading = tasks.create_task(self._lead_when_synced(parts))
                stopping = tasks.create_task(self._stopping.wait())
                await asyncio.wait((leading, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not leading.done():
                    await self._wind_down(parts, leading)
                for task in (stopping, watching, reloading, serving):
                    if task is not None:
                        task.cancel()
            self._log.info("stopped")

    async def _serve(self, server: HttpServer, fast_path: FastPath) -> None:
        """Answer requests once that no longer delays the first bind, or after `_SERVING_SECONDS`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SERVING_SECONDS):
                await fast_path.synced()
        await asyncio.to_thread(self.metrics.load)
        await server.serve()

    async def _wind_down(self, parts: SchedulerParts, leading: asyncio.Task[None]) -> None:
        """Let work in progress end within the grace period; then stop the rest."""
        grace, fast_path = self._configuration.shutdown_grace_period, parts.fast_path
        self._log.info("stopping", grace_seconds=grace, binds_in_flight=fast_path.binder.in_flight)
        for scheduler in parts.schedulers:
            scheduler.stop(grace=grace * (1 - _BIND_SHARE))
        if not self._scheduling:
            leading.cancel()
        _, late = await asyncio.wait({leading}, timeout=grace)
        if late:
            self._log.warning("grace period is over", binds_in_flight=fast_path.binder.in_flight)
            leading.cancel()
            with suppress(asyncio.CancelledError):
                await leading

    #: Whether this process decides and writes now. Owned by `_lead_when_synced`.
    _scheduling = False

    async def _lead_when_synced(self, parts: SchedulerParts) -> None:
        fast_path = parts.fast_path
        await fast_path.synced()
        frozen = parts.gc_policy.freeze() if parts.gc_policy is not None else 0
        self._log.info("synced", nodes=len(fast_path.ledger.rows), pods=len(fast_path.cluster.pods), frozen=frozen)

        for kind in fast_path.absent:
            # A kind that is served later is watched from then on. Volcano's kinds are optional.
            tell = self._log.warning if kind.resource.endswith(".volcano.sh") else self._log.info
            tell("input not served", plugins=kind.readers, kind=kind.name, lacking=kind.resource)

        async def schedule_all() -> None:
            async with asyncio.TaskGroup() as tasks:
                for scheduler in parts.schedulers:
                    tasks.create_task(scheduler.schedule())

        async def schedule() -> None:
            self._scheduling = True
            try:
                if parts.coordinator is None:
                    await schedule_all()
                else:
                    await schedule_within(parts.coordinator, schedule_all, self._stopping, self._log)
            finally:
                self._scheduling = False

        if not parts.leases.names:
            await schedule()
            return

        async def take_over() -> None:
            # Our watch may lack the last binds of the previous leader. It no longer writes, so a list from now on has
            # them all.
            try:
                await fast_path.renew()
            except NotListed as error:
                raise CannotLead(str(error)) from None
            for kind, problem in fast_path.behind.items():
                self._log.warning("leads without a fresh list", kind=kind, problem=problem)
            await schedule()

        events: EventRecorder | None = None
        if self._settings.events is not None:
            name, count = self._settings.name, self._observer.event_write
            events = self._recorder(parts.writing, controller=name, count=count)
        await lead(
            parts.leases,
            take_over,
            status=self.metrics.leader_election_master_status.labels,
            overrun=self._overrun,
            log=self._log,
            events=events,
            back_off=after_lease_duration(self._configuration, self._lease_timing),
        )

    # ---- parts

    def _settings_of(self, configuration: Configuration) -> FastPathSettings:
        batch = batch_settings_of(configuration, identity=self._identity)
        settings = settings_of(configuration, identity=self._identity)
        if batch is None:
            return settings
        return replace(settings, beside=(batch.profile,), default_queue=batch.default_queue)

    def _make_reloader(self) -> Reloader | None:
        if self._source is None or self._source.file is None:
            return None
        return Reloader(
            self._source,
            self._configuration,
            apply=self._apply,
            observer=ReloadReports(self.metrics, now=lambda: self._timing.now().timestamp()),
            sleep=self._timing.sleep,
        )

    def _apply(self, configuration: Configuration) -> None:
        """Switch to another configuration between cycles. If this raises, nothing has changed."""
        settings, batch = self._settings_of(configuration), self.batch
        assert self.fast_path is not None, "made before the reloader"
        self.fast_path.reconfigure(settings)
        batch_settings = batch_settings_of(configuration, identity=self._identity)
        if batch is not None and batch_settings is not None:
            batch.reconfigure(batch_settings, self.fast_path.profile(batch_settings.scheduler_name))
        self._observer.set_policy(configuration.conflict_policy)
        if configuration.logging.level != self._configuration.logging.level:
            set_level(configuration.logging.level)
        self._configuration, self._settings = configuration, settings

    def _console(self, fast_path: FastPath) -> ConsolePicture:
        return ConsolePicture(
            fast_path,
            self.batch,
            self.coordinator,
            self.metrics,
            about={
                "identity": self._identity,
                "schedulers": [profile.scheduler_name for profile in self._configuration.profiles],
                "workers": self._configuration.worker_count,
            },
            leading=lambda: self._scheduling,
            now=lambda: self._timing.now().timestamp(),
        )

    def sources(self) -> Sources:
        """Return the content of the HTTP server. Needs `run`."""
        fast_path = self.fast_path
        assert fast_path is not None, "asked while the process runs"

        pages = DebugPages(fast_path, self.batch, leading=lambda: self._scheduling, timing=self._timing)
        console = self._console(fast_path)
        return Sources(
            metrics=self.metrics.exposition,
            configuration=lambda: to_dict(self._configuration),
            debug=DebugSources(
                queue=pages.queue,
                places=PLACES,
                pending=pages.pending,
                cache=pages.cache,
                explain=pages.explain,
                explain_group=None if self.batch is None else pages.explain_group,
                check=pages.check,
            ),
            figures=console.figures,
            console=console if self._configuration.serving.console else None,
            ready=(
                Check("sched-handler-sync", lambda: named("not synced yet", fast_path.missing)),
                Check("informer-watch", lambda: named(SILENT, fast_path.stale)),
                Check("informer-renewal", lambda: named("not listed since this process leads", fast_path.behind)),
                Check("shutdown", lambda: "shutting down" if self._stopping.is_set() else None),
            ),
            live=(Check("leaderElection", self.leases.problem),),
        )
