"""Builds the writing parts of the fast path: conditions, events, claims and binds."""

from __future__ import annotations

from dataclasses import dataclass

from agent_scheduler.binding.binder import Binder
from agent_scheduler.binding.calls import Calls
from agent_scheduler.binding.failure import FailureHandler
from agent_scheduler.binding.messages import Messages
from agent_scheduler.binding.messenger import KubeMessenger
from agent_scheduler.binding.plugin_writes import Background, PluginWrites
from agent_scheduler.binding.prebind import PreBinder
from agent_scheduler.binding.queue_admission import Election, QueueAdmission
from agent_scheduler.cluster.gang_choice import GangChoice
from agent_scheduler.cluster.groups import Groups
from agent_scheduler.engine.shards.claims import ShardingMode
from agent_scheduler.kube.retry import Timing
from agent_scheduler.kube.transport import Transport

from .observer import FastPathObserver
from .outside import OutsideShard
from .settings import FastPathSettings
from .shard import SchedulerShard
from .state import FastPathState
from .watching import Watching


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The handling of decisions: a bind after its claims, or another attempt."""

    failures: FailureHandler
    writes: PluginWrites
    binder: Binder
    #: None if all nodes may be used.
    outside: OutsideShard | None


def build_messages(
    settings: FastPathSettings, *, transport: Transport, observer: FastPathObserver, timing: Timing
) -> Messages:
    return Messages(
        transport,
        name=settings.name,
        identity=settings.identity,
        status_writes=settings.status_writes,
        events=settings.events,
        event_buffer=settings.event_buffer,
        observer=observer,
        timing=timing,
    )


def build_calls(
    state: FastPathState, shard: SchedulerShard | None, *, transport: Transport, timing: Timing
) -> Calls:
    rules = state.rules
    return Calls(
        transport,
        rate=rules.settings.binds,
        policy=rules.settings.bind_policy,
        timing=timing,
        annotations=state.ledger.bound_with,
        may_bind_to=None if shard is None else shard.may_bind_to,
    )


def build_admission(
    state: FastPathState,
    settings: FastPathSettings,
    groups: Groups | None,
    *,
    turn: Election,
    transport: Transport,
    messenger: KubeMessenger,
    observer: FastPathObserver,
    timing: Timing,
) -> QueueAdmission:
    """Build the admission of all pods of this process and, if nodes are shared, of other schedulers' pods.

    `groups` are None without a batch scheduler. `turn` tells when gates may be removed, if at all.
    """
    state.ledger.usage.gated.choose = GangChoice(state.cluster, groups)
    return QueueAdmission(
        state.cluster,
        transport,
        workers=settings.gate_removal_workers,
        enabled=settings.queue_admission,
        patience=settings.reservation_timeout,
        cleanups=state.rules.cleanups,
        messenger=messenger,
        turn=turn if settings.removes_gates else None,
        observer=observer,
        timing=timing,
    )


def build_binding(
    state: FastPathState,
    calls: Calls,
    watching: Watching,
    *,
    messenger: KubeMessenger,
    observer: FastPathObserver,
    timing: Timing,
) -> Binding:
    settings = state.rules.settings
    background = Background()
    writes = PluginWrites(
        cluster=state.cluster,
        storage=state.storage,
        claims=state.claims,
        calls=calls,
        messenger=messenger,
        observer=observer,
        background=background,
        caught_up=lambda version: watching.informers.catch_up("ResourceClaim", version),
        timing=timing,
    )
    outside = _build_outside(state, writes, timing)
    failures = FailureHandler(
        queue=state.queue,
        messenger=messenger,
        observer=observer,
        history=state.history,
        usage=state.ledger.usage,
        outside=outside,
    )
    prebind = PreBinder(
        cluster=state.cluster,
        profile_of=state.rules.profile,
        writes=writes,
        patch=calls.patch,
        background=background,
        timing=timing,
    )
    binder = Binder(
        cluster=state.cluster,
        wake=state.feed.wake,
        messenger=messenger,
        binds=calls.binds,
        policy=settings.policy,
        concurrency=settings.binds.concurrency,
        adapts=not settings.binds.qps,
        timing=timing,
        observer=observer,
        nominations=state.nominations,
        prebind=prebind,
    )
    return Binding(failures=failures, writes=writes, binder=binder, outside=outside)


def _build_outside(state: FastPathState, writes: PluginWrites, timing: Timing) -> OutsideShard | None:
    rules = state.rules
    if rules.settings.sharding is not ShardingMode.HARD:
        return None
    return OutsideShard(
        state.cluster,
        {**rules.beside, **rules.profiles},
        rules.membership,
        shard=rules.settings.shard,
        writes=writes,
        timing=timing,
    )
