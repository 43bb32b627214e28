"""The supervisor: what one scheduler process is to the world, done by several.

    start:  endpoint ─> server ─> children (each synced) ─> [leases ─> shard] ─> nodes and pods divided
    end:    SIGTERM or SIGINT ─> children end in order ─> nodes and leases released ─> exit 0

It decides on no pod. It holds the leases, follows the NodeShard or the names of all nodes, has the HTTP server and the
configuration file, and tells the children until when they may write: no longer than its own right lasts, and never
longer than a few seconds from now, so that they stop by themselves if it does. Exit codes are those of `Runtime`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path

from agent_scheduler.config import Configuration, Reloader, Source, to_dict
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.fastpath.settings import settings_of
from agent_scheduler.kube.auth import load_endpoint
from agent_scheduler.kube.errors import RequestFailed
from agent_scheduler.kube.fence import FencedTransport
from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.lease import boottime
from agent_scheduler.kube.leases import Leases
from agent_scheduler.kube.recorder import EventRecorder
from agent_scheduler.kube.retry import REAL, Timing
from agent_scheduler.kube.transport import Endpoint, Transport
from agent_scheduler.leading import CannotLead, coordinator_of, lead, leader_events, leases_of, run_to_end
from agent_scheduler.serving.configured import server_of
from agent_scheduler.serving.selfcheck import logged_check
from agent_scheduler.shards.coordinator import Coordinator
from agent_scheduler.telemetry.logs import get_logger, set_level
from agent_scheduler.telemetry.observers import ReloadReports, ShardReports
from agent_scheduler.telemetry.supervising import SupervisorMetrics

from .asking import Asking
from .children import Children, Spawn
from .exchange import Exchange
from .nodes import Nodes
from .shares import for_one
from .wire import (
    Alive,
    Answer,
    Begin,
    Configure,
    End,
    Given,
    Hello,
    Lead,
    Left,
    Lend,
    Order,
    Ready,
    Report,
    Synced,
)

#: Connections beside those of watches: lists, leases, the NodeShard's status, reviews of who may read the metrics.
_CONNECTIONS = 8
#: Seconds between two words of how long children may write; less where that is not long.
_BEAT = 1.0
#: Seconds after which leases are given back if no child has come to schedule under them: the API server does not list
#: what decisions need, or not to us.
_NOBODY_BEGINS = 180.0
#: Seconds that a child may take beyond the grace to end, until it is killed.
_BEYOND_GRACE = 5.0


class Supervisor:
    """Owner of the children and of all that only one process may do. `run` may be called once."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        spawn: Spawn,
        source: Source | None = None,
        endpoint: Endpoint | None = None,
        abort: Callable[[int], object] = os._exit,
    ) -> None:
        """`source`, `endpoint` and `abort`: as for `Runtime`. Raises KubeConfigError."""
        self._abort = abort
        self._configuration = configuration
        self._source = source
        kubeconfig = configuration.client_connection.kubeconfig
        self._endpoint = endpoint or load_endpoint(kubeconfig=Path(kubeconfig) if kubeconfig else None)
        self._timing = REAL
        self._lease_timing = Timing(clock=boottime)
        self._identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        self._log = get_logger("supervisor")
        self._stopping = asyncio.Event()
        count = self._count = configuration.processes
        self.metrics = SupervisorMetrics(version=version("agent-scheduler"), children=count)
        self.leases = Leases({}, identity=self._identity)
        self.children = Children(
            count,
            spawn=spawn,
            hello=self._hello,
            until=self._until,
            beat=min(_BEAT, configuration.leader_election.renew_deadline / 4),
            heard=self._heard,
            gone=self._gone,
            timing=self._timing,
        )
        self.exchange = Exchange(
            count,
            say=self._say,
            clock=self._timing.clock,
            shared=configuration.sharding.mode != "none",
        )
        #: Set when somebody has to look whether a fence is over.
        self._changed = asyncio.Event()
        self._asking = Asking(self.children.say, members=lambda: sorted(self.children.running))
        #: Children whose picture is whole, and those that were told to begin.
        self._synced: set[int] = set()
        #: Set once a child's has been.
        self._can_list = asyncio.Event()
        self._begun: set[int] = set()
        #: What keeps a child from knowing the cluster as it is, as it said last.
        self._problems: dict[int, str] = {}
        #: Whether the children are to schedule. Owner: `_work`.
        self._working = False
        #: Children that were started since.
        self._fresh: set[int] = set()
        self._reloader: Reloader | None = None

    def stop(self) -> None:
        """Begin the orderly end; `run` returns when it is done."""
        self._stopping.set()

    def reload(self) -> None:
        """Load the configuration file again at once, changed or not."""
        if self._reloader is not None:
            self._reloader.now()

    async def run(self, *, signals: bool = True) -> int:
        """Have the children schedule until stopped. Returns the exit code."""
        has_file = self._source is not None and self._source.file is not None
        return await run_to_end(
            self._run,
            stop=self.stop,
            at_once=self._overrun,
            check=lambda: logged_check(self._asking.check, self._log),
            reload=self.reload if has_file else None,
            signals=signals,
            log=self._log,
        )

    async def _run(self) -> None:
        configuration = self._configuration
        async with AsyncExitStack() as stack:
            transport: Transport = Http1Transport(
                self._endpoint,
                pool_size=_CONNECTIONS,
                user_agent=f"agent-scheduler/{version('agent-scheduler')}",
                observe=self.metrics.api_request,
            )
            stack.push_async_callback(transport.close)
            leases = self.leases = leases_of(
                configuration,
                transport,
                identity=self._identity,
                timing=self._lease_timing,
                on_new_leader=lambda lease, who: self._log.info("leader", identity=who, lease=lease),
                source=self._source,
            )
            if configuration.serving.port:
                sources = self._asking.sources(
                    own=self.metrics.exposition,
                    configuration=lambda: to_dict(self._configuration),
                    problem=self._problem,
                    leases=leases.problem,
                )
                server = server_of(configuration.serving, sources, transport)
                await server.start()
                stack.push_async_callback(server.stop)
            self._log.info(
                "started",
                api_server=self._endpoint.base_url,
                source=self._endpoint.source,
                schedulers=[profile.scheduler_name for profile in configuration.profiles],
                processes=self._count,
            )
            self.metrics.config_loaded(self._timing.now().timestamp())
            self._reloader = self._make_reloader()
            try:
                async with asyncio.TaskGroup() as tasks:
                    service = [tasks.create_task(self._go_on_in_time())]
                    if self._reloader is not None:
                        service.append(tasks.create_task(self._reloader.run()))
                    tasks.create_task(self.children.run())
                    leading = tasks.create_task(self._lead(transport, leases))
                    stopping = tasks.create_task(self._stopping.wait())
                    await asyncio.wait((leading, stopping), return_when=asyncio.FIRST_COMPLETED)
                    if not self._working and not leading.done():
                        leading.cancel()
                        await self._wind_down()
                    await asyncio.wait({leading})
                    for task in (stopping, *service):
                        task.cancel()
            finally:
                self.children.kill()
            self._log.info("stopped")

    # ---- while it leads

    async def _lead(self, transport: Transport, leases: Leases) -> None:
        if not leases.names:
            await self._work(transport)
            return
        # Whoever cannot list the cluster is not to keep others from leading.
        await self._can_list.wait()
        writing = FencedTransport(transport, lambda: leases.held)
        await lead(
            leases,
            lambda: self._work(writing),
            status=self.metrics.leader_election_master_status.labels,
            overrun=self._overrun,
            log=self._log,
            events=self._leader_events(writing),
        )

    def _leader_events(self, transport: Transport) -> EventRecorder | None:
        if not self._configuration.events.enabled:
            return None
        return leader_events(
            transport,
            controller=self._configuration.profiles[0].scheduler_name,
            identity=self._identity,
            timing=self._timing,
            count=lambda what: self.metrics.events_total.labels(what).inc(),
        )

    def _overrun(self) -> None:
        self.children.kill()
        self._abort(1)

    async def _work(self, transport: Transport) -> None:
        """Have the children schedule, until the process is to end."""
        self._working = True
        try:
            for child in sorted(self._synced):
                self._begin(child)
            async with asyncio.TaskGroup() as tasks:
                nodes = Nodes(
                    self.exchange,
                    transport,
                    mode=self._configuration.sharding.mode,
                    timing=self._timing,
                    changed=self._changed.set,
                )
                service = nodes.begin(tasks)
                coordinator = None
                if nodes.is_side:
                    coordinator = coordinator_of(
                        self._configuration,
                        transport,
                        side=nodes,
                        observer=ShardReports(self.metrics),
                        timing=self._timing,
                        lease_timing=self._lease_timing,
                        times=settings_of(self._configuration, identity="").watch_times,
                    )
                    service.append(tasks.create_task(coordinator.run()))
                    service.append(tasks.create_task(self._open(coordinator, nodes)))
                if self.leases.names:
                    service.append(tasks.create_task(self._see_that_somebody_begins()))
                await self._stopping.wait()
                await self._wind_down()
                for task in service:
                    task.cancel()
            if coordinator is not None:
                try:
                    await coordinator.release()
                except RequestFailed as error:
                    self._log.warning("nodes not given back", problem=str(error))
        except BaseException:
            # Others may lead: nothing of the children may come after this.
            self.children.kill()
            raise
        finally:
            self._working = False

    async def _see_that_somebody_begins(self) -> None:
        """Raises CannotLead if nobody does in time."""
        await self._timing.sleep(_NOBODY_BEGINS)
        if not self.exchange.members:
            raise CannotLead(self._problem() or "no process schedules")

    async def _open(self, coordinator: Coordinator, nodes: Nodes) -> None:
        await coordinator.has_settled()
        nodes.open()

    async def _wind_down(self) -> None:
        """Let the children end in order, within the grace."""
        grace = self._configuration.shutdown_grace_period
        self._log.info("stopping", grace_seconds=grace, processes=len(self.children.running))
        self.exchange.close()
        self.children.say_to_all(End())
        if not await self.children.ended(grace + _BEYOND_GRACE):
            self._log.warning("grace is over", processes=len(self.children.running))
            self.children.kill()
            await self.children.ended(_BEYOND_GRACE)

    async def _go_on_in_time(self) -> None:
        """See to nodes whose fence is over."""
        while True:
            self._changed.clear()
            self.exchange.go_on()
            free = self.exchange.next_free()
            pause = 60.0 if free is None else max(0.0, free - self._timing.clock())
            waiting = asyncio.ensure_future(self._timing.sleep(pause))
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait({waiting, changed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
                changed.cancel()

    # ---- what is said to children and heard of them

    def _hello(self, number: int) -> Hello:
        if self._working:
            self._fresh.add(number)
        return Hello(number, f"{self._identity}-{number}", for_one(self._configuration, self._count))

    def _until(self) -> float:
        if not self._working:
            return float("-inf")
        longest = self._lease_timing.clock() + self._configuration.leader_election.renew_deadline
        return min(self.leases.until, longest)

    def _say(self, child: int, order: Order) -> None:
        self.children.say(child, order)

    def _heard(self, child: int, report: Report) -> None:
        match report:
            case Synced():
                self._log.info("child synced", child=child)
                self._synced.add(child)
                self._can_list.set()
                self._begin(child)
            case Alive(problem):
                self._problems[child] = problem
            case Ready():
                self.exchange.come(child)
            case Left() | Lend() | Given():
                self.exchange.heard(child, report)
            case Answer():
                self._asking.answered(child, report)
            case _:
                raise AssertionError(f"not a report: {report!r}")

    def _begin(self, child: int) -> None:
        if self._working and child not in self._begun:
            self._begun.add(child)
            # Not at the next beat only: until then all that it wants to write would fail.
            self.children.say(child, Lead(self._until()))
            # Of what others did who held the leases until then it may not have heard.
            self.children.say(child, Begin(bool(self.leases.names) and child not in self._fresh))

    def _gone(self, child: int, asked: bool) -> None:
        if not asked:
            self.metrics.children_ended_total.labels(str(child)).inc()
        self._problems.pop(child, None)
        self._synced.discard(child)
        self._begun.discard(child)
        self._asking.gone(child)
        self.exchange.gone(child)
        self._changed.set()

    def _problem(self) -> str | None:
        """Why not all are doing their work, or could at once."""
        if self._stopping.is_set():
            return "shutting down"
        there = self.exchange.members if self._working else self._synced
        if (problem := next((each for each in self._problems.values() if each), None)) is not None:
            return problem
        missing = [str(number) for number in range(self._count) if number not in there]
        return f"not synced yet: process {', '.join(missing)}" if missing else None

    # ---- the configuration

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
        # What plugins do not take raises here, before any child hears of it: there it would end the child, and whoever
        # is started in its place.
        ledger = Ledger()
        for profile in settings_of(configuration, identity=self._identity).profiles:
            profile.seeing(ledger, Devices(ledger.touch)).hint_map()
        if configuration.logging.level != self._configuration.logging.level:
            set_level(configuration.logging.level)
        self._configuration = configuration
        self.children.say_to_all(Configure(for_one(configuration, self._count)))
