"""The leases and the NodeShard that a process must hold to schedule, according to its configuration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from agent_scheduler.config.load import ConfigurationSource
from agent_scheduler.config.namespace import OUTSIDE
from agent_scheduler.config.schema import Configuration, LeaderElection
from agent_scheduler.shards.holders import Holders, lease_name
from agent_scheduler.telemetry.logs import FilteringBoundLogger
from kube_client.errors import RequestFailed
from kube_client.lease import LeaderElector, LeadershipOverrun, LeaseConfig
from kube_client.leases import Leases
from kube_client.recorder import NORMAL, EventRecorder
from kube_client.reflector import WatchTimes
from kube_client.retry import Timing
from kube_client.transport import Transport

if TYPE_CHECKING:
    from agent_scheduler.shards.coordinator import Coordinator, Side
    from agent_scheduler.telemetry.observers import ShardReports

#: The lease whose holder alone removes the gates of queues, among all schedulers that share nodes.
GATES_LEASE = "agent-scheduler-queue-gates"
#: Seconds for the last event about a lease.
_EVENTS_GRACE = 2.0


class StatusGauge(Protocol):
    """A metric sample."""

    def set(self, value: float, /) -> None: ...


class CannotLead(Exception):
    """The process holds its leases but cannot work; another one may be able to. The message says why."""


async def lead(
    leases: Leases,
    work: Callable[[], Awaitable[None]],
    *,
    status: Callable[[str], StatusGauge],
    overrun: Callable[[], object],
    log: FilteringBoundLogger,
    events: EventRecorder | None,
    back_off: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Do `work` once all leases are held. Raises the exceptions of `Leases.run`.

    `status` of each lease's name is 1 meanwhile. `overrun` must end the process immediately. `events` records the
    start and the end.

    If `work` raises CannotLead, the leases are released and tried for again after `back_off`; without `back_off` the
    exception is raised.
    """
    statuses = [status(name) for name in leases.names]

    def set_status(value: float) -> None:
        for each in statuses:
            each.set(value)

    refused: CannotLead | None = None

    async def held() -> None:
        nonlocal refused
        set_status(1)
        try:
            async with leadership_events(leases, events):
                await work()
        except CannotLead as why:
            refused = why
        finally:
            set_status(0)

    set_status(0)
    try:
        while True:
            await leases.run(held)
            if refused is None:
                return
            log.warning("leases released", problem=str(refused))
            if back_off is None:
                raise refused
            refused = None
            await back_off()
    except LeadershipOverrun as error:
        # Unwinding would wait for the very work that does not stop, while another process may lead.
        log.critical("leadership overrun", problem=str(error))
        overrun()
        raise


@asynccontextmanager
async def leadership_events(leases: Leases, events: EventRecorder | None) -> AsyncIterator[None]:
    """Record the start and the end of leading as events about the leases, in client-go's words.

    After the loss of a lease nothing may be written, not even that event.
    """
    if events is None:
        yield
        return

    def say(what: str) -> None:
        for reference in leases.references:
            note = f"{leases.identity} {what}"
            events.event(reference, type=NORMAL, reason="LeaderElection", action="LeaderElection", note=note)

    recording = asyncio.create_task(events.run())
    try:
        say("became leader")
        try:
            yield
        finally:
            if leases.held:
                say("stopped leading")
        await events.drain(_EVENTS_GRACE)
    finally:
        recording.cancel()
        await asyncio.wait({recording})


def after_lease_duration(configuration: Configuration, timing: Timing) -> Callable[[], Awaitable[None]]:
    """Return a `back_off` that gives every other candidate time to try for the lease."""
    return lambda: timing.sleep(configuration.leader_election.lease_duration)


def leases_of(
    configuration: Configuration,
    transport: Transport,
    *,
    identity: str,
    timing: Timing,
    on_new_leader: Callable[[str, str], None],
    source: ConfigurationSource | None = None,
) -> Leases:
    """Return the leases that are required for writing; none if the process has no peers.

    The clock of `timing` must continue while the machine is suspended. `on_new_leader` is called with a lease and its
    holder. `source` is where the configuration was loaded from.
    """
    election, sharding = configuration.leader_election, configuration.sharding
    wanted: dict[str, tuple[str, Sequence[str]]] = {}
    if election.leader_elect:
        wanted[election.resource_name] = election.resource_namespace, ("leaderElection", "resourceNamespace")
    if sharding.mode != "none":
        wanted[lease_name(sharding.name)] = sharding.lease_namespace, ("sharding", "leaseNamespace")

    electors = {
        name: elector_of(
            election,
            transport,
            namespace=namespace,
            name=name,
            identity=identity,
            namespace_from="" if source is None else source.origin(path),
            timing=timing,
            on_new_leader=partial(on_new_leader, name),
        )
        for name, (namespace, path) in wanted.items()
    }
    return Leases(electors, identity=identity)


def elector_of(
    election: LeaderElection,
    transport: Transport,
    *,
    namespace: str,
    name: str,
    identity: str,
    namespace_from: str,
    timing: Timing,
    on_new_leader: Callable[[str], None],
) -> LeaderElector:
    """Return an elector for a lease with the durations of `election`. `timing` is as for `leases_of`."""
    config = LeaseConfig(
        namespace=namespace,
        name=name,
        identity=identity,
        namespace_from=namespace_from,
        # A namespace from a flag or a file may be misspelled.
        creates_namespace=namespace_from == OUTSIDE,
        lease_duration=int(election.lease_duration),
        renew_deadline=election.renew_deadline,
        retry_period=election.retry_period,
        request_timeout=min(5.0, election.renew_deadline / 2),
    )
    return LeaderElector(transport, config, timing=timing, on_new_leader=on_new_leader)


def coordinator_of(
    configuration: Configuration,
    transport: Transport,
    *,
    side: Side,
    observer: ShardReports,
    timing: Timing,
    lease_timing: Timing,
    times: WatchTimes,
) -> Coordinator:
    """Return the coordinator of the scheduler's NodeShard. `lease_timing` is as `timing` for `leases_of`."""
    # Imported here because most schedulers share no nodes.
    from agent_scheduler.shards.coordinator import Coordinator

    sharding = configuration.sharding
    return Coordinator(
        transport,
        shard=sharding.name,
        side=side,
        holders=Holders(
            transport,
            namespace=sharding.lease_namespace,
            lease_duration=configuration.leader_election.lease_duration,
            fence=sharding.fence_period,
            timing=lease_timing,
        ),
        observer=observer,
        timing=timing,
        times=times,
    )


async def schedule_within(
    coordinator: Coordinator,
    schedule: Callable[[], Awaitable[None]],
    stopping: asyncio.Event,
    log: FilteringBoundLogger,
) -> None:
    """Schedule on the nodes of the shard until `stopping`, then release them."""
    try:
        async with asyncio.TaskGroup() as tasks:
            service = [tasks.create_task(coordinator.run()), tasks.create_task(stopping.wait())]
            # Until the usable nodes are known, no pod is rejected for lack of one or sent to another scheduler's.
            settled = tasks.create_task(coordinator.has_settled())
            await asyncio.wait((settled, service[1]), return_when=asyncio.FIRST_COMPLETED)
            if not stopping.is_set():
                await schedule()
            for task in (settled, *service):
                task.cancel()
        await coordinator.release()
    except RequestFailed as error:
        log.warning("nodes not released", problem=str(error))
