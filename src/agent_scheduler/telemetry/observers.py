"""Converts the reports of queue, workers and binder into metrics and, if relevant for users, log lines.

Reports are synchronous, fast, and never raise: on the hot path they cost an addition or two. Durations are in seconds.
Only failures are logged, once a minute per kind. What lies below this package defines Protocols, which these implement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Protocol

from agent_scheduler.engine.queueing.entry import QueuedPodInfo
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.telemetry.logs import FilteringBoundLogger, LimitedLog, get_logger, shows_debug
from agent_scheduler.telemetry.metrics import Metrics
from agent_scheduler.telemetry.process import ProcessMetrics
from agent_scheduler.telemetry.series import Counter, Histogram, Tally
from kube_client.informers import Kind
from kube_client.watch_events import Object


class MetricsQueueRecorder:
    """Receives the reports of the scheduling queue (`engine.queueing.record.QueueRecorder`)."""

    def __init__(
        self, metrics: Metrics, *, log: FilteringBoundLogger | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._metrics = metrics
        self._log = get_logger("queue") if log is None else log
        self._limited_log = LimitedLog(self._log, clock=clock)
        self._forgotten = metrics.inflight_events_forgotten_total.labels()
        self.scheduled = metrics.scheduled
        self.urgent_retry = metrics.urgent_retry

    def incoming(self, queue: str, event: str, entry: QueuedPodInfo) -> None:
        self._metrics.queue_incoming_pods_total.labels(queue, event).inc()

    def unschedulable(self, plugin: str, profile: str, delta: int) -> None:
        self._metrics.unschedulable_pods.labels(plugin, profile).inc(delta)

    def hint_evaluated(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        self._metrics.queueing_hint_execution_duration_seconds.labels(plugin, event, hint).observe(seconds)

    def pre_hint_evaluated(self, plugin: str, event: str, named: int | None, waiting: int) -> None:
        asked = self._metrics.pre_queueing_hint_evaluations_total
        if named is None:
            asked.labels(plugin, "all_pods").inc()
            return
        asked.labels(plugin, "narrowed").inc()
        # The words of KEP-6132.
        self._log.debug("PreQueueingHint narrowed pod set", plugin=plugin, change=event, pods=named, waiting=waiting)

    def events_forgotten(self, count: int) -> None:
        self._forgotten.inc(count)

    def plugin_raised(self, plugin: str, where: str, error: Exception) -> None:
        self._limited_log.error("plugin raised", f"{plugin} {where}", plugin=plugin, where=where, exc_info=error)


class TypedChange(Protocol):
    """A change from a watch; the value of `type` is added, modified or deleted."""

    @property
    def type(self) -> Enum: ...


#: Type of a change -> the end of its event's label, as in the queue's events (NodeAdd).
_ACTIONS = {"added": "Add", "modified": "Update", "deleted": "Delete"}


class MetricsObserver:
    """Receives the reports of a scheduler: of its watches, queue loop, workers, binder and writers.

    `clock` is in seconds, the same as for `started` of an attempt; `policy` labels the conflicts.
    """

    def __init__(
        self, metrics: Metrics, *, clock: Callable[[], float], policy: str, log: FilteringBoundLogger | None = None
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._log = get_logger("scheduler") if log is None else log
        self._decision, self._watch = metrics.steps.of("decision"), metrics.steps.of("watch")
        self.session_step = metrics.steps.of("session")
        handling = self.handling = metrics.handling
        self.applies, self.unreadable = handling.applies, handling.unreadable
        self._limited_log = LimitedLog(self._log, clock=clock)
        self._algorithm = metrics.scheduling_algorithm_duration_seconds.labels()
        self._ranks = metrics.families.tally(histograms=[metrics.candidate_rank.labels()])
        self._conflicts = metrics.conflicts_total.labels(policy)
        self._fits = metrics.revalidations_total.labels("fits")
        self._refused = metrics.revalidations_total.labels("refused")
        self._preemptions = metrics.preemption_attempts_total.labels()
        self._victims = metrics.preemption_victims.labels()
        self._evictions_failed = metrics.evictions_failed_total.labels()
        for kind in ("Pod", "Node"):
            metrics.malformed_objects_total.labels(kind)
        # The keys are the reported values, so a report costs one lookup.
        self._attempts: dict[tuple[str, str], Tally] = {}
        self._outcomes: dict[tuple[Enum, str], Tally] = {}
        # kind -> the types of its changes so far, with their series. There are few, and hashing an enum is slower
        # than comparing all of them.
        self._changes: dict[str, list[tuple[Enum, Counter, Histogram]]] = {}
        # Grows to the configured number of workers.
        self._workers: dict[int, Tally] = {}

    def set_policy(self, policy: str) -> None:
        """Count conflicts with another label from now on."""
        self._conflicts = self._metrics.conflicts_total.labels(policy)

    def decided(self, worker: int, profile: str, seconds: float) -> None:
        """Record a cycle that named at least one candidate, or rejected the pod."""
        try:
            cycles = self._workers[worker]
        except KeyError:
            cycles = self._workers[worker] = self._cycles(str(worker))
        cycles.add(seconds)
        self._decision(seconds)

    def _cycles(self, worker: str) -> Tally:
        metrics = self._metrics
        # Created at 0 before the first failure, because an alert on an increase needs the first step.
        metrics.worker_failures_total.labels(worker)
        return metrics.families.tally(
            counters=[metrics.worker_cycles_total.labels(worker)],
            sums=[metrics.worker_busy_seconds_total.labels(worker)],
            histograms=[self._algorithm],
        )

    def cycle_failed(self, worker: int, pod: PodInfo, error: Exception) -> None:
        """Record that a cycle raised. The pod, with its group if it has one, is in backoff."""
        self._metrics.worker_failures_total.labels(str(worker)).inc()
        self._limited_log.error("cycle failed", type(error).__name__, worker=worker, pod=pod.key, exc_info=error)

    def attempted(self, pod: PodInfo, result: str, started: float, plugins: Collection[str], message: str) -> None:
        """Record an attempt that ended without a bind: `unschedulable` by `plugins`, or `error`, with its message."""
        self._ended(pod.scheduler_name, result, started)

    def outraced(self, pod: PodInfo, started: float) -> None:
        """Do nothing, because `judged` counts the conflicts."""

    def _ended(self, profile: str, result: str, started: float) -> None:
        try:
            attempts = self._attempts[profile, result]
        except KeyError:
            counter, duration = self._metrics.profile(profile).attempts[result]
            attempts = self._metrics.families.tally(counters=[counter], histograms=[duration])
            self._attempts[profile, result] = attempts
        attempts.add(self._clock() - started)

    def pod_scheduled(self, pod: PodInfo, node_name: str, started: float) -> None:
        """Record that an attempt that began at clock `started` ended with the pod bound to a node."""
        self._ended(pod.scheduler_name, "scheduled", started)
        if shows_debug():
            self._log.debug("pod bound", pod=pod.key, node=node_name)

    def judged(self, conflicts: int, revalidated: int, outdated: int, accepted: bool) -> None:
        """Record a judged result: candidates skipped, live re-checks passed and failed."""
        if conflicts:
            self._conflicts.inc(conflicts)
        if revalidated:
            self._fits.inc(revalidated)
        if outdated:
            self._refused.inc(outdated)
        if accepted:
            # The skipped candidates come before the accepted one.
            self._ranks.add(conflicts + 1)

    def let_past(self, held: float) -> None:
        """Record that a pod may pass the gate of its queue after `held` seconds."""
        self._metrics.queue_gate_held_seconds.labels().observe(held)

    def gate_removed(self) -> None:
        """Record that a gate was removed from a pod."""
        self._metrics.queue_gate_removals_total.labels("removed").inc()

    def gate_not_removed(self, pod: str, problem: str) -> None:
        """Record that the gate of `pod` (namespace/name) could not be removed; it is retried."""
        self._metrics.queue_gate_removals_total.labels("failed").inc()
        self._limited_log.warning("gate not removed", pod=pod, problem=problem)

    def plugin_raised(self, plugin: str, where: str, error: Exception) -> None:
        """Record an error of `plugin` in its method `where`."""
        self._limited_log.error("plugin raised", f"{plugin} {where}", plugin=plugin, where=where, exc_info=error)

    def bound(self, outcome: Enum, seconds: float, pod: PodInfo, node_name: str) -> None:
        """Record a bind. `outcome` is from a closed set of enums with texts as values."""
        profile = pod.scheduler_name
        try:
            binds = self._outcomes[outcome, profile]
        except KeyError:
            binds = self._outcomes[outcome, profile] = self._binds(outcome, profile)
        binds.add(seconds)

    def _binds(self, outcome: Enum, profile: str) -> Tally:
        metrics = self._metrics
        label = str(outcome.value).replace(" ", "_")
        return metrics.families.tally(
            counters=[metrics.bind_outcomes_total.labels(label)],
            histograms=[
                metrics.profile(profile).bind[outcome.value == "bound"],
                metrics.bind_duration_seconds.labels(),
            ],
        )

    def devices_awaited(self, profile: str, driver: str, status: str, seconds: float) -> None:
        """Record the wait of a pod for devices of this driver; `status` is `success`, `failure` or `timeout`."""
        metrics = self._metrics
        metrics.dra_bindingconditions_allocations_total.labels(profile, driver, status).inc()
        metrics.dra_bindingconditions_wait_duration_seconds.labels(profile, driver, status).observe(seconds)

    def bind_failed(self, pod: PodInfo, node_name: str, problem: str) -> None:
        """Record a failed bind; the pod is requeued."""
        self._limited_log.warning("bind failed", problem[:60], pod=pod.key, node=node_name, problem=problem)

    def preemption_attempted(self) -> None:
        """Record a search for victims, whether or not it found any."""
        self._preemptions.inc()

    def preempted(self, victims: int) -> None:
        """Record the number of pods that are to be evicted for one pod."""
        self._victims.observe(victims)

    def eviction_failed(self, victim: str, problem: str) -> None:
        """Record that `victim` (namespace/name) could not be evicted."""
        self._evictions_failed.inc()
        self._limited_log.warning("eviction failed", problem[:60], victim=victim, problem=problem)

    def malformed(self, kind: str, key: str, problem: str) -> None:
        self._metrics.malformed_objects_total.labels(kind).inc()
        self._limited_log.warning("malformed object", kind, kind=kind, key=key, problem=problem)

    def change_failed(self, kind: Kind, item: Object, error: Exception) -> None:
        """Record a failure to handle an object, which is a bug triggered by that object."""
        self._metrics.malformed_objects_total.labels(kind.name).inc()
        self.handling.change_failed(kind, item, error)

    def watched(self, kind: str, what: str) -> None:
        """Record that a reflector did `what`."""
        self._metrics.watched(kind, what)

    def received(self, kind: str, changes: Sequence[TypedChange], began: float) -> None:
        """Record that a batch of changes was handled, from clock `began` until now."""
        if not changes:
            return
        left, seconds = len(changes), self._clock() - began
        if left > 1:
            # It is unknown which of the objects took the time.
            self.handling.clear()
        self._watch(seconds)
        self.handling.clear()
        mean = seconds / left
        types = [change.type for change in changes]
        for change_type, received, handling in self._changes.get(kind, ()):
            number = types.count(change_type)
            if number:
                received.inc(number)
                handling.observe_many(mean, number)
                left -= number
        if left:
            for change_type, received, handling in self._met(kind, types):
                number = types.count(change_type)
                received.inc(number)
                handling.observe_many(mean, number)

    def _met(self, kind: str, types: list[Enum]) -> list[tuple[Enum, Counter, Histogram]]:
        """Return the series for types that changes of this kind have for the first time."""
        metrics, known = self._metrics, self._changes.setdefault(kind, [])
        new = [
            (
                change_type,
                metrics.watch_events_total.labels(kind, change_type.value),
                metrics.event_handling_duration_seconds.labels(f"{kind}{_ACTIONS[change_type.value]}"),
            )
            for change_type in dict.fromkeys(types)
            if change_type not in [each for each, _, _ in known]
        ]
        known += new
        return new

    def status_write(self, what: str) -> None:
        """Record the count of a status writer."""
        self._metrics.status_writes_total.labels(what).inc()

    def event_write(self, what: str) -> None:
        """Record the count of an event recorder."""
        self._metrics.events_total.labels(what).inc()


class ReloadReports:
    """Receives the results of configuration reloads. `now` is the Unix time."""

    def __init__(self, metrics: ProcessMetrics, *, now: Callable[[], float]) -> None:
        self._metrics = metrics
        self._now = now
        self._log = get_logger("config")

    def applied(self, configuration: object, changed: list[str]) -> None:
        """Report an applied configuration. `changed` has the paths of settings; empty for an equivalent file."""
        self._metrics.config_applied(self._now())
        self._log.info("configuration applied", changed=changed)

    def refused(self, problem: str) -> None:
        """Report a rejected configuration; nothing has changed."""
        self._metrics.config_refused()
        self._log.error("configuration refused", problem=problem, in_effect="the previous configuration")

    def without_effect(self, warning: str) -> None:
        """Report an ineffective setting of the file."""
        self._log.warning("without effect", setting=warning)


class ShardReports:
    """Receives the reports of a shard's coordinator."""

    def __init__(self, metrics: Metrics) -> None:
        nodes = metrics.shard_nodes
        self._nodes = [nodes.labels(each) for each in ("desired", "in_use", "to_add", "to_remove")]
        self._writes = metrics.shard_writes_total
        for what in ("written", "conflict", "failed", "withdrawn"):
            self._writes.labels(what)

    def shard(self, desired: int, in_use: int, to_add: int, to_remove: int) -> None:
        """Report the numbers of nodes, as published."""
        for gauge, number in zip(self._nodes, (desired, in_use, to_add, to_remove), strict=True):
            gauge.set(number)

    def shard_write(self, what: str) -> None:
        """Report an attempt to publish (`written`, `conflict`, `failed`), or a claim that was `withdrawn`."""
        self._writes.labels(what).inc()
