"""All metrics of the scheduler: names, descriptions, labels and buckets.

Names with the prefix `scheduler_` are kube-scheduler's (`pkg/scheduler/metrics`), with its labels and buckets, so
existing dashboards and alerts work unchanged. Concepts that kube-scheduler does not have, such as lost races between
workers, have the prefix `agent_scheduler_`. `docs/metrics.md` describes all of them; a test keeps it in step.

A metric is here only if the product sets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agent_scheduler.engine.queueing.places import PendingCounts
from agent_scheduler.engine.queues.book import QuotaBook
from agent_scheduler.engine.quotas.vector import MEMORY, PODS
from agent_scheduler.telemetry.process import ProcessMetrics
from agent_scheduler.telemetry.series import Counter, Histogram, Tally, exponential
from agent_scheduler.telemetry.spans import TraceCounts

#: Results of an attempt, as labeled by kube-scheduler.
RESULTS = ("scheduled", "unschedulable", "error")
#: The places of the queue that `pending_pods` counts. As in kube-scheduler, a pod in flight is in none of them.
PENDING_QUEUES = ("active", "backoff", "unschedulable", "gated")

_ATTEMPT_SECONDS = exponential(0.001, 2, 15)
_EXTENSION_POINT_SECONDS = exponential(0.0001, 2, 12)
_SLI_SECONDS = exponential(0.01, 2, 20)
_HINT_SECONDS = exponential(0.00001, 1.5, 20)
_DEVICE_WAIT_SECONDS = exponential(0.1, 2, 14)
_HELD_SECONDS = exponential(0.5, 3, 10)
_ATTEMPTS = exponential(1, 2, 5)
_CANDIDATE_RANKS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0)

#: The limit up to which the number of attempts is a label value; above it is "15+", as in kube-scheduler.
_ATTEMPTS_SHOWN = 15

#: Feature gates that are off by default in kube-scheduler.
_ALPHA: Final = frozenset({"GangScheduling"})


class ProfileMetrics:
    """The series of one profile: by result of an attempt, and by success of a bind."""

    __slots__ = ("attempts", "bind")

    def __init__(self, metrics: Metrics, profile: str) -> None:
        points = metrics.framework_extension_point_duration_seconds
        self.attempts: dict[str, tuple[Counter, Histogram]] = {
            result: (
                metrics.schedule_attempts_total.labels(result, profile),
                metrics.scheduling_attempt_duration_seconds.labels(result, profile),
            )
            for result in RESULTS
        }
        self.bind = {True: points.labels("Bind", "Success", profile), False: points.labels("Bind", "Error", profile)}


def _reserved(book: QuotaBook) -> dict[tuple[str, ...], float]:
    return {
        (queue, resource): amount if resource in (MEMORY, PODS) else amount / 1000
        for queue in book.names()
        for resource, amount in book.kept(queue).items()
    }


def _by_queue(pods: PendingCounts) -> Mapping[str, float]:
    return {queue: getattr(pods, queue) for queue in PENDING_QUEUES}


class Metrics(ProcessMetrics):
    """Owns the metrics of a scheduler. An attribute has the name of its metric without prefix.

    `read` of a family receives the scheduler (`fastpath.scheduler.FastPath`) at each scrape.
    """

    def __init__(self, *, version: str) -> None:
        super().__init__(version=version)
        self._profiles: dict[str, ProfileMetrics] = {}
        #: The number of attempts of a pod, at most `_ATTEMPTS_SHOWN` -> the tally for its scheduling time.
        self._sli: dict[int, Tally] = {}
        self.traces = TraceCounts()
        self._attempts()
        self._queue()
        self._events()
        self._retries()
        self._binding()
        self._outside_of_binds()
        self._writes()
        self._shards()
        self._traced()

    def _attempts(self) -> None:
        make = self.families
        self.schedule_attempts_total = make.counter(
            "scheduler_schedule_attempts_total",
            "Attempts to schedule a pod, by result: scheduled, unschedulable (no node fits) or error.",
            "result",
            "profile",
        )
        self.scheduling_attempt_duration_seconds = make.histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Duration of an attempt, from taking the pod off the queue to its result, including the bind.",
            "result",
            "profile",
            bounds=_ATTEMPT_SECONDS,
        )
        self.scheduling_algorithm_duration_seconds = make.histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Duration of choosing candidate nodes for one pod.",
            bounds=_ATTEMPT_SECONDS,
        )
        self.framework_extension_point_duration_seconds = make.histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Duration of an extension point for one pod. Filters and scores run together per class of pods: "
            "scheduler_scheduling_algorithm_duration_seconds includes them.",
            "extension_point",
            "status",
            "profile",
            bounds=_EXTENSION_POINT_SECONDS,
        )
        self.pod_scheduling_attempts = make.histogram(
            "scheduler_pod_scheduling_attempts", "Attempts per scheduled pod.", bounds=_ATTEMPTS
        )
        self.pod_scheduling_sli_duration_seconds = make.histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Time from a pod's first entry into the active queue to its bind, by the number of attempts.",
            "attempts",
            bounds=_SLI_SECONDS,
        )
        self.worker_cycles_total = make.counter(
            "agent_scheduler_worker_cycles_total", "Completed scheduling cycles of a worker.", "worker"
        )
        self.worker_busy_seconds_total = make.counter(
            "agent_scheduler_worker_busy_seconds_total",
            "Time of a worker in scheduling cycles; the rate is its utilization.",
            "worker",
        )
        self.worker_failures_total = make.counter(
            "agent_scheduler_worker_failures_total",
            "Scheduling cycles that raised an exception; the pod went to backoff.",
            "worker",
        )

    def _queue(self) -> None:
        make = self.families
        self.pending_pods = make.gauge(
            "scheduler_pending_pods", "Waiting pods, by queue.", "queue", read=lambda of: _by_queue(of.queue.pending())
        )
        self.queue_gated_pods = make.gauge(
            "agent_scheduler_queue_gated_pods",
            "Pods held by the gate of their queue's capacity, and pods that have passed it without a node yet.",
            "standing",
            read=lambda of: {"held": len(of.ledger.usage.gated.held), "reserved": len(of.ledger.usage.gated.reserved)},
        )
        self.queue_reserved_resources = make.gauge(
            "agent_scheduler_queue_reserved_resources",
            "Resources reserved in a queue for admitted groups and pods without a node: in cores, bytes, pods.",
            "queue_name",
            "resource",
            read=lambda of: _reserved(of.ledger.usage.book),
        )
        self.pods_in_flight = make.gauge(
            "agent_scheduler_pods_in_flight",
            "Pods taken off the queue with an attempt in progress.",
            read=lambda of: of.queue.pending().in_flight,
        )
        self.queue_incoming_pods_total = make.counter(
            "scheduler_queue_incoming_pods_total",
            "Pods that entered a queue, by queue and causing event.",
            "queue",
            "event",
        )
        self.unschedulable_pods = make.gauge(
            "scheduler_unschedulable_pods",
            "Pods that wait because of a plugin; a pod counts once for each plugin that rejected it.",
            "plugin",
            "profile",
        )

    def _events(self) -> None:
        make = self.families
        self.event_handling_duration_seconds = make.histogram(
            "scheduler_event_handling_duration_seconds",
            "Duration of handling one change of the cluster, including ledger and queue: the mean of its batch.",
            "event",
            bounds=_EXTENSION_POINT_SECONDS,
        )
        self.queueing_hint_execution_duration_seconds = make.histogram(
            "scheduler_queueing_hint_execution_duration_seconds",
            "Duration of one queueing hint, by result.",
            "plugin",
            "event",
            "hint",
            bounds=_HINT_SECONDS,
        )
        self.pre_queueing_hint_evaluations_total = make.counter(
            "scheduler_pre_queueing_hint_evaluations_total",
            "Events for which a plugin named the affected pods: some (narrowed) or all_pods.",
            "plugin",
            "result",
        )
        self.inflight_events_forgotten_total = make.counter(
            "agent_scheduler_inflight_events_forgotten_total",
            "Events dropped because too many were kept for pods in flight; these pods are retried after their backoff.",
        )
        self.inflight_events = make.gauge(
            "scheduler_inflight_events",
            "Events that are kept because pods are in flight.",
            "event",
            read=lambda of: of.queue.kept_in_flight(),
        )

    def _retries(self) -> None:
        make = self.families
        self.pod_scheduled_after_flush_total = make.counter(
            "scheduler_pod_scheduled_after_flush_total",
            "Pods scheduled after a timeout instead of an event retried them, which means a missed hint.",
        )
        self.urgent_retries_total = make.counter(
            "agent_scheduler_urgent_retries_total",
            "Pods that lost a race for a node and went to the head of the queue (granted) or, "
            "without urgent retries left, to backoff (spent).",
            "result",
        )
        self._urgent = {
            True: self.urgent_retries_total.labels("granted"),
            False: self.urgent_retries_total.labels("spent"),
        }
        self._after_flush = self.pod_scheduled_after_flush_total.labels()
        self._pod_attempts = make.tally(histograms=[self.pod_scheduling_attempts.labels()])

    def _binding(self) -> None:
        make = self.families
        self.cache_size = make.gauge(
            "scheduler_cache_size",
            "Nodes, pods on a node, and pods whose bind is not confirmed yet.",
            "type",
            read=lambda of: {
                "nodes": len(of.ledger.rows),
                "pods": len(of.ledger.placements),
                "assumed_pods": of.ledger.assumed,
            },
        )
        self.conflicts_total = make.counter(
            "agent_scheduler_conflicts_total",
            "Candidate nodes passed over at the bind because they had changed since the decision, by conflict policy.",
            "policy",
        )
        self.revalidations_total = make.counter(
            "agent_scheduler_revalidations_total",
            "Changed candidate nodes that were checked again: the pod still fits, or is rejected.",
            "result",
        )
        self.candidate_rank = make.histogram(
            "agent_scheduler_candidate_rank",
            "The rank of the candidate node that a pod was bound to, from 1.",
            bounds=_CANDIDATE_RANKS,
        )
        self.bind_outcomes_total = make.counter(
            "agent_scheduler_bind_outcomes_total", "Bind requests, by outcome.", "outcome"
        )
        self.bind_duration_seconds = make.histogram(
            "agent_scheduler_bind_duration_seconds",
            "Duration of a bind, including repeated requests and lookups of an unknown outcome.",
            bounds=_ATTEMPT_SECONDS,
        )

    def _outside_of_binds(self) -> None:
        make = self.families
        self.dra_bindingconditions_allocations_total = make.counter(
            "scheduler_dra_bindingconditions_allocations_total",
            "Pods that waited for devices with binding conditions, by driver and result.",
            "profile",
            "driver",
            "status",
        )
        self.dra_bindingconditions_wait_duration_seconds = make.histogram(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "Time that pods waited for devices with binding conditions.",
            "profile",
            "driver",
            "status",
            bounds=_DEVICE_WAIT_SECONDS,
        )
        self.preemption_attempts_total = make.counter(
            "scheduler_preemption_attempts_total", "Attempts to find victims for a rejected pod."
        )
        self.preemption_victims = make.histogram(
            "scheduler_preemption_victims", "Victims selected for one pod.", bounds=exponential(1, 2, 7)
        )
        self.evictions_failed_total = make.counter(
            "agent_scheduler_evictions_failed_total", "Victims of a preemption that could not be evicted."
        )
        self.binds_in_flight = make.gauge(
            "agent_scheduler_binds_in_flight", "Binds in progress.", read=lambda of: of.binder.in_flight
        )
        self.bind_concurrency = make.gauge(
            "agent_scheduler_bind_concurrency",
            "The current limit of binds in progress.",
            read=lambda of: of.binder.concurrency,
        )

    def _writes(self) -> None:
        make = self.families
        self.status_writes_total = make.counter(
            "agent_scheduler_status_writes_total", "Writes of a pod's PodScheduled condition.", "result"
        )
        self.queue_gate_removals_total = make.counter(
            "agent_scheduler_queue_gate_removals_total",
            "Requests that remove the gate of its queue's capacity from a pod.",
            "result",
        )
        self.queue_gate_held_seconds = make.histogram(
            "agent_scheduler_queue_gate_held_seconds",
            "Age of pods when they pass the gate of their queue's capacity.",
            bounds=_HELD_SECONDS,
        )
        self.feature_enabled = make.gauge(
            "kubernetes_feature_enabled", "1 for an enabled feature gate, else 0.", "name", "stage"
        )

    def _shards(self) -> None:
        make = self.families
        self.shard_nodes = make.gauge(
            "agent_scheduler_shard_nodes",
            "Nodes of this scheduler's NodeShard: desired, in use, to add, to remove.",
            "state",
        )
        self.shard_writes_total = make.counter(
            "agent_scheduler_shard_writes_total",
            "Attempts to publish the NodeShard's status, by result; includes withdrawn claims.",
            "result",
        )

    def _traced(self) -> None:
        make = self.families
        self.trace_spans_total = make.counter(
            "agent_scheduler_trace_spans_total",
            "Spans of traced pods: exported, failed (not accepted by the collector) or dropped (too many waiting).",
            "result",
            read=lambda _: self.traces.spans(),
        )
        self.untraced_pods_total = make.counter(
            "agent_scheduler_untraced_pods_total",
            "Sampled pods that were not traced, because too many traced pods were waiting.",
            read=lambda _: self.traces.untraced,
        )

    def features(self, gates: Mapping[str, bool]) -> None:
        """Set the state of all feature gates, with the stage of kube-scheduler's gate of the same name."""
        for name, enabled in gates.items():
            stage = "ALPHA" if name in _ALPHA else "BETA"
            self.feature_enabled.labels(name, stage).set(int(enabled))

    def profile(self, name: str) -> ProfileMetrics:
        """Return the series of a profile, created at 0 on first use. Profiles come only from the configuration."""
        try:
            return self._profiles[name]
        except KeyError:
            made = self._profiles[name] = ProfileMetrics(self, name)
            return made

    def scheduled(self, attempts: int, sli_seconds: float, after_flush: bool) -> None:
        """Record that a pod got its node, `sli_seconds` after it first entered the active queue."""
        self._pod_attempts.add(attempts)
        shown = min(attempts, _ATTEMPTS_SHOWN)
        tally = self._sli.get(shown)
        if tally is None:
            label = f"{_ATTEMPTS_SHOWN}+" if shown == _ATTEMPTS_SHOWN else str(shown)
            series = self.pod_scheduling_sli_duration_seconds.labels(label)
            tally = self._sli[shown] = self.families.tally(histograms=[series])
        tally.add(sli_seconds)
        if after_flush:
            self._after_flush.inc()

    def urgent_retry(self, granted: bool) -> None:
        self._urgent[granted].inc()
