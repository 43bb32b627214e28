"""What the fast path writes: conditions and events of pods, claims, and binds."""

from __future__ import annotations

from dataclasses import dataclass

from agent_scheduler.binding.binder import Binder
from agent_scheduler.binding.calls import Calls, RateLimit
from agent_scheduler.binding.failure import FailureHandler
from agent_scheduler.binding.messenger import KubeMessenger
from agent_scheduler.binding.plugin_writes import Background, PluginWrites
from agent_scheduler.binding.prebind import PreBinder
from agent_scheduler.kube.budget import Budget
from agent_scheduler.kube.recorder import EventRecorder
from agent_scheduler.kube.retry import Timing
from agent_scheduler.kube.status import StatusWriter
from agent_scheduler.kube.transport import Named, Transport, segment
from agent_scheduler.objects.batch import NATIVE_API

from .observer import FastPathObserver
from .settings import FastPathSettings
from .shard import Shard
from .state import State
from .watching import Watching


class Messages:
    """Owner of the writers of conditions and events, and of their budgets."""

    def __init__(
        self,
        settings: FastPathSettings,
        *,
        transport: Transport,
        observer: FastPathObserver,
        timing: Timing,
    ) -> None:
        self._status_budget = _budget(settings.status_writes, timing)
        self.status = StatusWriter(
            transport,
            budget=self._status_budget,
            concurrency=settings.status_writes.concurrency,
            timing=timing,
            now=timing.now,
            count=observer.status_write,
        )
        self.groups = StatusWriter(
            transport,
            budget=self._status_budget,
            path=native_group_path,
            resource="podgroups",
            concurrency=settings.status_writes.concurrency,
            timing=timing,
            now=timing.now,
            count=observer.status_write,
        )
        events: EventRecorder | None = None
        self._event_budget: Budget | None = None
        if settings.events is not None:
            self._event_budget = _budget(settings.events, timing)
            events = EventRecorder(
                transport,
                controller=settings.name,
                instance=settings.identity,
                budget=self._event_budget,
                concurrency=settings.events.concurrency,
                capacity=settings.event_buffer,
                timing=timing,
                count=observer.event_write,
            )
        self.messenger = KubeMessenger(status=self.status, groups=self.groups, recorder=events)
        #: Each is to be run, and to be drained in this order.
        self.writers: tuple[StatusWriter | EventRecorder, ...] = (
            (self.status, self.groups) if events is None else (self.status, self.groups, events)
        )

    def set_rates(self, settings: FastPathSettings) -> None:
        """From now on."""
        self._status_budget.set_rate(settings.status_writes.qps, settings.status_writes.burst)
        if settings.events is not None and self._event_budget is not None:
            self._event_budget.set_rate(settings.events.qps, settings.events.burst)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What becomes of a decision: a bind, behind its claims, or another try."""

    failures: FailureHandler
    writes: PluginWrites
    binder: Binder


def build_calls(state: State, shard: Shard | None, *, transport: Transport, timing: Timing) -> Calls:
    rules = state.rules
    return Calls(
        transport,
        rate=rules.settings.binds,
        policy=rules.settings.bind_policy,
        timing=timing,
        may_bind_to=None if shard is None else shard.may_bind_to,
    )


def build_binding(
    state: State,
    calls: Calls,
    watching: Watching,
    *,
    messenger: KubeMessenger,
    observer: FastPathObserver,
    timing: Timing,
) -> Binding:
    settings = state.rules.settings
    failures = FailureHandler(
        queue=state.queue,
        messenger=messenger,
        observer=observer,
        history=state.history,
        usage=state.ledger.usage,
    )
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
    return Binding(failures=failures, writes=writes, binder=binder)


def _budget(limit: RateLimit, timing: Timing) -> Budget:
    """For calls of a dispatcher, which makes no more than `limit.concurrency` of them at a time."""
    return Budget(qps=limit.qps or None, burst=limit.burst, timing=timing)


def native_group_path(group: Named) -> str:
    return f"{NATIVE_API}/namespaces/{segment(group.namespace)}/podgroups/{segment(group.name)}"
