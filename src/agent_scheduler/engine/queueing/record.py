"""The queue's reports about itself as plain calls; telemetry turns them into kube-scheduler's metrics."""

from __future__ import annotations

from typing import Final, Protocol

from .entry import QueuedPodInfo

#: The `where` of an error in a pre-hint or in a plugin's keys.
PRE_HINT: Final = "PreQueueingHint"


class QueueRecorder(Protocol):
    """Receives reports synchronously, on the queue's own call stack: must be fast and must not raise."""

    def incoming(self, queue: str, event: str, entry: QueuedPodInfo) -> None:
        """Count `entry`, which went into `queue` (active, backoff, unschedulable) because of `event`.

        Metric: queue_incoming_pods_total.
        """

    def unschedulable(self, plugin: str, profile: str, delta: int) -> None:
        """Add `delta` (+1 or -1) to the pods that wait because of `plugin`: unschedulable_pods."""

    def hint_evaluated(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        """Record one run of a hint; `hint` is Queue, QueueSkip or Error: queueing_hint_execution_duration_seconds."""

    def pre_hint_evaluated(self, plugin: str, event: str, named: int | None, waiting: int) -> None:
        """Record that a pre-hint named `named` of the pods that wait for `plugin`, or all of them if None.

        Metric: pre_queueing_hint_evaluations_total.
        """

    def events_forgotten(self, count: int) -> None:
        """Record that the full log of events for pods in flight lost its oldest ones."""

    def plugin_raised(self, plugin: str, where: str, error: Exception) -> None:
        """Record an error of `plugin` in `where` (QueueingHint, PreQueueingHint, PreEnqueue). The queue continues."""

    def scheduled(self, attempts: int, sli_seconds: float, after_flush: bool) -> None:
        """Record that a pod got its node: pod_scheduling_attempts, pod_scheduling_sli_duration_seconds.

        With `after_flush` also pod_scheduled_after_flush_total, which counts wake-ups that hints missed.
        """

    def urgent_retry(self, granted: bool) -> None:
        """Record that a pod lost a race for a node.

        If not `granted`, its urgent retries are used up and it backs off.
        """


class NullRecorder:
    """Ignores all reports."""

    def incoming(self, queue: str, event: str, entry: QueuedPodInfo) -> None: ...
    def unschedulable(self, plugin: str, profile: str, delta: int) -> None: ...
    def hint_evaluated(self, plugin: str, event: str, hint: str, seconds: float) -> None: ...
    def pre_hint_evaluated(self, plugin: str, event: str, named: int | None, waiting: int) -> None: ...
    def events_forgotten(self, count: int) -> None: ...
    def plugin_raised(self, plugin: str, where: str, error: Exception) -> None: ...
    def scheduled(self, attempts: int, sli_seconds: float, after_flush: bool) -> None: ...
    def urgent_retry(self, granted: bool) -> None: ...
