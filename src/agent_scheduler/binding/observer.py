"""The receiver of the reports of a scheduler: of its watches, queue loop, workers, binder and writers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from agent_scheduler.cluster.cluster import ClusterObserver
from agent_scheduler.engine.state.podinfo import PodInfo
from kube_client.bind import BindOutcome
from kube_client.informers import InformerObserver


class Observer(ClusterObserver, InformerObserver, Protocol):
    """Receives reports synchronously; must be fast and must not raise. Durations are in seconds."""

    # ---- decisions

    def decided(self, worker: int, profile: str, seconds: float) -> None:
        """Record a cycle that named at least one candidate, or rejected the pod."""

    def cycle_failed(self, worker: int, pod: PodInfo, error: Exception) -> None:
        """Record that a cycle raised. The pod, with its group if it has one, is in backoff."""

    def attempted(
        self, pod: PodInfo, result: str, started: float, plugins: Collection[str], message: str
    ) -> None:
        """Record an attempt that ended without a bind: `unschedulable` by `plugins`, or `error`, with its message."""

    def outraced(self, pod: PodInfo, started: float) -> None:
        """Record an attempt that ended because other pods took its nodes."""

    # ---- binds

    def judged(self, conflicts: int, revalidated: int, outdated: int, accepted: bool) -> None:
        """Record a judged result: candidates skipped, live re-checks passed and failed."""

    def bound(self, outcome: BindOutcome, seconds: float, pod: PodInfo, node_name: str) -> None:
        """Record the end of a bind."""

    def pod_scheduled(self, pod: PodInfo, node_name: str, started: float) -> None:
        """Record that an attempt that began at clock `started` ended with the pod bound to a node."""

    def bind_failed(self, pod: PodInfo, node_name: str, problem: str) -> None:
        """Record a failed bind; the pod is requeued."""

    def devices_awaited(self, profile: str, driver: str, status: str, seconds: float) -> None:
        """Record the wait of a pod for devices of this driver; `status` is `success`, `failure` or `timeout`."""

    # ---- preemption

    def preemption_attempted(self) -> None:
        """Record a search for victims, whether or not it found any."""

    def preempted(self, victims: int) -> None:
        """Record the number of pods that are to be evicted for one pod."""

    def eviction_failed(self, victim: str, problem: str) -> None:
        """Record that `victim` (namespace/name) could not be evicted."""

    # ---- gates of queues

    def let_past(self, held: float) -> None:
        """Record that a pod may pass the gate of its queue after `held` seconds."""

    def gate_removed(self) -> None:
        """Record that a gate was removed from a pod."""

    def gate_not_removed(self, pod: str, problem: str) -> None:
        """Record that the gate of `pod` (namespace/name) could not be removed; it is retried."""

    def plugin_raised(self, plugin: str, where: str, error: Exception) -> None:
        """Record an error of `plugin` in its method `where`."""

    # ---- writers of conditions and events

    def status_write(self, what: str) -> None:
        """Record a count of a `StatusWriter`."""

    def event_write(self, what: str) -> None:
        """Record a count of an `EventRecorder`."""
