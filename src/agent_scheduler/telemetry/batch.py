"""The metrics of the batch scheduler: Volcano's with Volcano's names (`pkg/scheduler/metrics`), and its own.

Metrics of queues and jobs are read from the last session at each scrape, so deleted ones disappear. As in Volcano,
the controllers have the `volcano_queue_pod_group_*_count` (`telemetry.controllers`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Final

from agent_scheduler.engine.quotas.queues import QueueInfo
from agent_scheduler.engine.quotas.vector import COMMON, CPU, MEMORY
from agent_scheduler.engine.session.close import SessionResult
from agent_scheduler.engine.session.model import JobInfo
from agent_scheduler.engine.session.session import ACTING, OPENING, Session, Stage
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.verdicts import LABELS
from agent_scheduler.telemetry.families import Families, Read
from agent_scheduler.telemetry.observers import MetricsObserver
from agent_scheduler.telemetry.series import exponential

_MILLISECONDS: Final = exponential(5, 2, 15)
_JOB_MILLISECONDS: Final = exponential(32, 2, 10)
_SESSION_SECONDS: Final = exponential(0.001, 2, 16)
_SLICE_SECONDS: Final = exponential(0.00025, 2, 12)

#: The results of a session: completed, ended early because the process stops, or failed.
SESSION_RESULTS: Final = ("completed", "given_up", "failed")
ATTEMPT_RESULTS: Final = ("scheduled", "unschedulable", "error")
EVICTING_ACTIONS: Final = ("preempt", "reclaim")

#: Part of a metric's name -> the name of a session's gauge, and the description.
_AMOUNTS: Final = {
    "allocated": ("allocated", "The allocated resources of a queue"),
    "request": ("request", "The allocated and requested resources of a queue"),
    "deserved": ("deserved", "The deserved resources of a queue"),
    "real_capacity": (
        "realCapacity",
        "The maximum resources of a queue, by its limits and by the capacity of the cluster",
    ),
}

_Queues = Mapping[str, float]
_Series = Mapping[tuple[str, ...], float]


class BatchMetrics:
    """Owns the last session's results and the counting families. An attribute has the name of its metric.

    Created only for a configured batch scheduler; without one these families do not exist.
    """

    def __init__(self, families: Families) -> None:
        self._families = families
        #: None before the first session has ended.
        self.last: tuple[Session, SessionResult] | None = None
        #: Job -> its name, queue and namespace, and the milliseconds from its creation to the last bind of its
        #: members.
        self.job_durations: dict[str, tuple[tuple[str, ...], float]] = {}
        self._latencies()
        self._outcomes()
        self._of_jobs()
        self._of_queues()
        self._own()

    def _latencies(self) -> None:
        make = self._families
        self.e2e = make.histogram(
            "volcano_e2e_scheduling_latency_milliseconds",
            "Duration of a session, including pauses for other tasks.",
            bounds=_MILLISECONDS,
        ).labels()
        self.plugin = make.histogram(
            "volcano_plugin_scheduling_latency_milliseconds",
            "Duration of opening a plugin; its later calls count for the calling action.",
            "plugin",
            "OnSession",
            bounds=_MILLISECONDS,
        )
        self.action = make.histogram(
            "volcano_action_scheduling_latency_milliseconds",
            "Duration of an action in a session, without pauses for other tasks.",
            "action",
            bounds=_MILLISECONDS,
        )
        self.task = make.histogram(
            "volcano_task_scheduling_latency_milliseconds",
            "Time from a pod's creation to the session that bound it.",
            bounds=_MILLISECONDS,
        ).labels()
        self.job = make.histogram(
            "volcano_e2e_job_scheduling_latency_milliseconds",
            "Time from a job's creation to a session that bound members of it.",
            bounds=_JOB_MILLISECONDS,
        ).labels()

    def _outcomes(self) -> None:
        make = self._families
        attempts = make.counter(
            "volcano_schedule_attempts_total",
            "Pods considered by sessions: scheduled (sent to be bound), unschedulable, or error (the bind failed).",
            "result",
        )
        self.attempts = {result: attempts.labels(result) for result in ATTEMPT_RESULTS}
        self.preemption_victims = make.gauge("volcano_pod_preemption_victims", "Pods evicted by the last session.")
        self.preemption_attempts = make.counter(
            "volcano_total_preemption_attempts", "Pods for which victims were selected."
        )

    def _of_jobs(self) -> None:
        make = self._families
        make.gauge(
            "volcano_unschedule_task_count",
            "Members that a job lacks for its minimum; absent for a complete job.",
            "job_id",
            read=lambda _: self._unscheduled(),
        )
        make.gauge(
            "volcano_unschedule_job_count",
            "Jobs that lack members for their minimum.",
            read=lambda _: len(self._lacking()),
        )
        make.gauge(
            "volcano_job_share",
            "Dominant share of a job with allocated resources; with the plugin drf.",
            "job_ns",
            "job_id",
            read=lambda _: self._shares(),
        )
        make.gauge(
            "volcano_e2e_job_scheduling_duration",
            "Milliseconds from a job's creation to the last bind of its members.",
            "job_name",
            "queue",
            "job_namespace",
            read=lambda _: dict(self.job_durations.values()),
        )

    def _of_queues(self) -> None:
        for name, (gauge, text) in _AMOUNTS.items():
            self._amount(name, text, self._reader(gauge))
        self._amount("capacity", "The capability of a queue, if specified", self._capacities)
        make = self._families
        for name, text in (
            ("share", "The largest ratio of allocated to deserved resources of a queue."),
            ("overused", "1 for a queue that has more than its deserved resources, else 0."),
        ):
            make.gauge(f"volcano_queue_{name}", text, "queue_name", read=_at_a_scrape(self._gauges, name))
        make.gauge(
            "volcano_queue_weight",
            "Weight of a queue.",
            "queue_name",
            read=lambda _: {queue.name: queue.weight for queue in self._queue_infos()},
        )

    def _amount(self, name: str, text: str, read: Callable[[str], _Queues]) -> None:
        """Add the three families of an amount. `read` returns `MilliCPU` or `Memory` by queue."""
        make = self._families
        for end, unit, key in (("milli_cpu", "thousandths of a core", "MilliCPU"), ("memory_bytes", "bytes", "Memory")):
            make.gauge(f"volcano_queue_{name}_{end}", f"{text}, in {unit}.", "queue_name", read=_at_a_scrape(read, key))
        make.gauge(
            f"volcano_queue_{name}_scalar_resources",
            f"{text} of any other resource, in thousandths.",
            "queue_name",
            "resource",
            read=lambda _: self._scalars(read),
        )

    def _own(self) -> None:
        make = self._families
        sessions = make.counter(
            "agent_scheduler_batch_sessions_total",
            "Sessions, by result: completed, given_up (the process stops), or failed by a defect.",
            "result",
        )
        self.sessions = {result: sessions.labels(result) for result in SESSION_RESULTS}
        self.session_seconds = make.histogram(
            "agent_scheduler_batch_session_duration_seconds",
            "Duration of a session, including pauses for other tasks.",
            bounds=_SESSION_SECONDS,
        ).labels()
        self.busy = make.counter(
            "agent_scheduler_batch_session_busy_seconds_total",
            "Time in sessions without pauses for other tasks: its rate is the share of a CPU that they use.",
        ).labels()
        self.slices = make.histogram(
            "agent_scheduler_batch_slice_duration_seconds",
            "Duration of a slice of a session, in which the event loop is blocked.",
            bounds=_SLICE_SECONDS,
        ).labels()
        make.gauge(
            "agent_scheduler_batch_groups_waiting",
            "Groups below their minimum, by what they wait for; a pod without a group counts as a group.",
            "reason",
            read=lambda _: self._waiting(),
        )
        self.groups_bound = make.counter(
            "agent_scheduler_batch_groups_bound_total", "Groups with members bound by a session, per session."
        ).labels()
        self.pods_bound = make.counter(
            "agent_scheduler_batch_pods_bound_total", "Pods that sessions submitted for binding."
        ).labels()
        self.refused = make.counter(
            "agent_scheduler_batch_commits_refused_total",
            "Pods that a session placed but did not submit, because their group no longer fit.",
        ).labels()
        evictions = make.counter(
            "agent_scheduler_batch_evictions_total", "Pods evicted by sessions, by action.", "action"
        )
        self.evictions = {action: evictions.labels(action) for action in EVICTING_ACTIONS}

    # ---- read from the last session

    def _lacking(self) -> list[tuple[JobInfo, int]]:
        if self.last is None:
            return []
        found = []
        for job in self.last[0].jobs.values():
            lacks = job.minimum - job.ready - job.best_effort
            if lacks > 0:
                found.append((job, lacks))
        return found

    def _unscheduled(self) -> _Queues:
        found: Counter[str] = Counter()
        for job, lacks in self._lacking():
            if not is_bare(job):
                # Volcano's label lacks the namespace.
                found[job.name] += lacks
        return found

    def _shares(self) -> _Series:
        if self.last is None:
            return {}
        session, result = self.last
        jobs = ((session.jobs[uid], share) for uid, share in result.shares.items() if share)
        return {(job.namespace, job.name): share for job, share in jobs if not is_bare(job)}

    def _waiting(self) -> _Queues:
        counts = Counter[str]()
        if self.last is not None:
            _, result = self.last
            counts.update(each.waits_for for each in result.groups)
            counts.update(each.label for each in result.lost.values())
        return {reason: counts[reason] for reason in LABELS}

    def _reader(self, gauge: str) -> Callable[[str], _Queues]:
        return lambda key: self._gauges(f"{gauge}{key}")

    def _gauges(self, name: str) -> _Queues:
        gauges = {} if self.last is None else self.last[1].gauges
        return {queue: values[name] for queue, values in gauges.items() if name in values}

    def _scalars(self, read: Callable[[str], _Queues]) -> _Series:
        names = {f"Scalar {resource}": resource for resource in self._resources()}
        return {(queue, resource): value for name, resource in names.items() for queue, value in read(name).items()}

    def _resources(self) -> Iterator[str]:
        """Yield the known resources other than cpu and memory."""
        if self.last is None:
            return
        session, result = self.last
        found: dict[str, None] = {}
        for values in result.gauges.values():
            found |= dict.fromkeys(name.split(" ", 1)[1] for name in values if "Scalar " in name)
        for queue in session.queues.values():
            found |= dict.fromkeys(each for each in queue.capability or {} if each not in COMMON)
        yield from found

    def _queue_infos(self) -> list[QueueInfo]:
        return [] if self.last is None else list(self.last[0].queues.values())

    def _capacities(self, key: str) -> _Queues:
        resource = {"MilliCPU": CPU, "Memory": MEMORY}.get(key) or key.removeprefix("Scalar ")
        return {
            queue.name: queue.capability[resource]
            for queue in self._queue_infos()
            if queue.capability is not None and resource in queue.capability
        }


def _at_a_scrape(read: Callable[[str], _Queues], name: str) -> Read:
    return lambda _: read(name)


def is_bare(job: JobInfo) -> bool:
    """Return whether the job is a single pod without a group; such pods have no series of their own."""
    return job.group.key == GroupKey(job.namespace, job.group.uid)


class BatchReports:
    """Receives the reports of the batch scheduler.

    Reports that both schedulers have are forwarded to the fast path's observer.
    """

    def __init__(self, metrics: BatchMetrics, observer: MetricsObserver, *, now: Callable[[], datetime]) -> None:
        self._metrics = metrics
        self._now = now
        self._attempted = observer.attempted
        self._step = observer.session_step
        self.handling = observer.handling
        self.malformed = observer.malformed
        self.bind_failed = observer.bind_failed
        self.eviction_failed = observer.eviction_failed
        self.status_write = observer.status_write
        self.event_write = observer.event_write

    def attempted(self, pod: PodInfo, result: str, started: float, plugins: Collection[str], message: str) -> None:
        self._attempted(pod, result, started, plugins, message)
        if result == "error":
            self._metrics.attempts[result].inc()

    def sliced(self, seconds: float) -> None:
        """Record the time for which a slice of a session has blocked the event loop."""
        self._metrics.busy.inc(seconds)
        self._metrics.slices.observe(seconds)
        self._step(seconds)

    def session_broken(self, result: str) -> None:
        """Count a session without a regular end: `given_up` or `failed`."""
        self._metrics.sessions[result].inc()

    def session_ended(
        self, session: Session, result: SessionResult, *, seconds: float, spent: Mapping[Stage, float]
    ) -> None:
        """Record a session. `spent` has the seconds of each stage, without pauses for other tasks."""
        metrics = self._metrics
        metrics.last = session, result
        metrics.sessions["completed"].inc()
        metrics.session_seconds.observe(seconds)
        metrics.e2e.observe(seconds * 1000)
        for option in (each for tier in session.conf.tiers for each in tier):
            duration = spent.get(Stage(OPENING, option.name), 0.0)
            metrics.plugin.labels(option.name, "OnSessionOpen").observe(duration * 1000)
        for action in session.conf.actions:
            metrics.action.labels(action).observe(spent.get(Stage(ACTING, action), 0.0) * 1000)
        unschedulable = sum(len(job.fit_errors) for job in session.fresh)
        metrics.attempts["unschedulable"].inc(unschedulable)
        self._bound(session)
        metrics.refused.inc(session.refused)
        metrics.preemption_victims.set(len(session.evicted))
        metrics.preemption_attempts.inc(session.preemptions)
        for _, action in session.evicted:
            metrics.evictions[action].inc()

    def _bound(self, session: Session) -> None:
        metrics, now = self._metrics, self._now().timestamp()
        for uid, tasks in session.bound.items():
            job = session.jobs[uid]
            for task in tasks:
                metrics.task.observe(_since(task.pod.created, now))
            if not is_bare(job):
                duration = _since(job.created, now)
                metrics.job.observe(duration)
                metrics.job_durations[uid] = (job.name, job.queue, job.namespace), duration
            metrics.groups_bound.inc()
            metrics.pods_bound.inc(len(tasks))
            metrics.attempts["scheduled"].inc(len(tasks))
        for gone in metrics.job_durations.keys() - session.jobs.keys():
            del metrics.job_durations[gone]


def _since(created: str, now: float) -> float:
    """Return the milliseconds since a time with whole seconds; 0 for an object without a creation time."""
    return max(now - _timestamp(created), 0.0) * 1000 if created else 0.0


# Many objects are created in the same second.
@lru_cache(maxsize=1024)
def _timestamp(created: str) -> float:
    return datetime.fromisoformat(created).timestamp()
