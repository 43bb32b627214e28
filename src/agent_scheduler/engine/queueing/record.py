"""What the queue reports about itself, as plain calls; telemetry turns them into kube-scheduler's metrics."""

from __future__ import annotations

from typing import Any, Final, Protocol

from .entry import QueuedPodInfo

#: Where a plugin raised that could not say which pods an event concerns.
PRE_HINT: Final = "PreQueueingHint"


class QueueRecorder(Protocol):
    """Receives facts as they happen, on the queue's own call stack: must be quick and must not raise."""

    def incoming(self, queue: str, event: str, entry: QueuedPodInfo[Any]) -> None:
        """`entry` went into `queue` (active, backoff, unschedulable) because of `event`: queue_incoming_pods_total."""

    def unschedulable(self, plugin: str, profile: str, delta: int) -> None:
        """`delta` (+1 or -1) pods are waiting because of `plugin`: unschedulable_pods."""

    def hint_evaluated(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        """One hint function ran; `hint` is Queue, QueueSkip or Error: queueing_hint_execution_duration_seconds."""

    def pre_hint_evaluated(self, plugin: str, event: str, named: int | None, waiting: int) -> None:
        """A pre-hint named so many of the pods that wait for `plugin`, or, where that is None, all of them:
        pre_queueing_hint_evaluations_total."""

    def events_forgotten(self, count: int) -> None:
        """The log of events for pods in flight was full, and lost its oldest ones."""

    def plugin_raised(self, plugin: str, where: str, error: Exception) -> None:
        """`plugin` raised in `where` (QueueingHint, PreQueueingHint, PreEnqueue). The queue went on; someone should
        see the error."""

    def scheduled(self, attempts: int, sli_seconds: float, after_flush: bool) -> None:
        """A pod got its node after `attempts`: pod_scheduling_attempts, pod_scheduling_sli_duration_seconds and,
        with `after_flush`, pod_scheduled_after_flush_total, which counts wake-ups that hints missed."""

    def urgent_retry(self, granted: bool) -> None:
        """A pod lost a race for a node; `granted` False: its urgent retries are spent and it backs off."""


class NullRecorder:
    """Reports to nobody."""

    def incoming(self, queue: str, event: str, entry: QueuedPodInfo[Any]) -> None: ...
    def unschedulable(self, plugin: str, profile: str, delta: int) -> None: ...
    def hint_evaluated(self, plugin: str, event: str, hint: str, seconds: float) -> None: ...
    def pre_hint_evaluated(self, plugin: str, event: str, named: int | None, waiting: int) -> None: ...
    def events_forgotten(self, count: int) -> None: ...
    def plugin_raised(self, plugin: str, where: str, error: Exception) -> None: ...
    def scheduled(self, attempts: int, sli_seconds: float, after_flush: bool) -> None: ...
    def urgent_retry(self, granted: bool) -> None: ...
