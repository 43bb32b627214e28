"""Writers of the conditions and events of pods and groups, with their own budgets."""

from __future__ import annotations

from dataclasses import dataclass

from agent_scheduler.objects.batch import NATIVE_API
from agent_scheduler.telemetry.batch import BatchReports
from agent_scheduler.telemetry.observers import MetricsObserver
from kube_client.budget import Budget
from kube_client.pace import Pace
from kube_client.recorder import EventRecorder, EventSettings, Reporter
from kube_client.retry import Timing
from kube_client.status import PODS, StatusKind, StatusSettings, StatusWriter
from kube_client.transport import PodIdentifier, Transport, segment

from .calls import RateLimit
from .messenger import KubeMessenger


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSettings:
    """The reporter that events name, and the limits of the writers."""

    name: str
    identity: str
    status_writes: RateLimit
    #: None: no events are written.
    events: RateLimit | None
    event_buffer: int


class Messages:
    """Owner of the writers of conditions and events, and of their budgets."""

    def __init__(
        self,
        settings: MessageSettings,
        *,
        transport: Transport,
        observer: MetricsObserver | BatchReports,
        timing: Timing,
        pace: Pace | None = None,
    ) -> None:
        """Create the writers, which send at `pace`, if given, behind more urgent requests."""
        status_writes, events = settings.status_writes, settings.events
        self._status_budget = budget_of(status_writes, timing)
        self.status, self.groups = (
            StatusWriter(
                kind,
                StatusSettings(concurrency=status_writes.concurrency),
                transport=transport,
                budget=self._status_budget,
                timing=timing,
                count=observer.status_write,
                pace=pace,
            )
            for kind in (PODS, StatusKind(native_group_path, "podgroups"))
        )
        self.recorder: EventRecorder | None = None
        self._event_budget: Budget | None = None
        if events is not None:
            self._event_budget = budget_of(events, timing)
            self.recorder = EventRecorder(
                Reporter(settings.name, settings.identity),
                EventSettings(concurrency=events.concurrency, capacity=settings.event_buffer),
                transport=transport,
                budget=self._event_budget,
                timing=timing,
                count=observer.event_write,
                pace=pace,
            )
        self.messenger = KubeMessenger(status=self.status, groups=self.groups, recorder=self.recorder)
        #: Run each of these, and drain them in this order.
        self.writers: tuple[StatusWriter | EventRecorder, ...] = (
            (self.status, self.groups) if self.recorder is None else (self.status, self.groups, self.recorder)
        )

    def set_rates(self, status_writes: RateLimit, events: RateLimit | None) -> None:
        """Set the rates from now on."""
        self._status_budget.set_rate(status_writes.qps, status_writes.burst)
        if events is not None and self._event_budget is not None:
            self._event_budget.set_rate(events.qps, events.burst)


def budget_of(limit: RateLimit, timing: Timing) -> Budget:
    """Return a budget for a dispatcher, which itself limits its calls to `limit.concurrency`."""
    return Budget(qps=limit.qps or None, burst=limit.burst, timing=timing)


def native_group_path(group: PodIdentifier) -> str:
    return f"{NATIVE_API}/namespaces/{segment(group.namespace)}/podgroups/{segment(group.name)}"
