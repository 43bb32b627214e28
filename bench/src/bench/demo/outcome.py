"""The result of a run: the value from which the final table, the report and --json are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from apimachinery.plural import counted
from bench.harness.audit import Audit
from bench.harness.measure import ATTEMPTS, CONFLICTS, PENDING, URGENT, Reading, Usage
from bench.harness.result import RANKS, Figures, Latency, percentiles, waits
from bench.harness.run import Play
from bench.harness.specs import GPU_MILLI, Workload
from bench.harness.watching import Observer, Track


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One moment of the run. `at` is in seconds since its start."""

    at: float
    created: int
    bound: int
    running: int
    ended: int
    queues: dict[str, float] = field(default_factory=dict)
    conflicts: float | None = None
    urgent: float | None = None
    attempts: float | None = None
    scheduler: Usage | None = None
    server: Usage | None = None

    @classmethod
    def of(cls, play: Play, reading: Reading) -> Sample:
        metrics = reading.metrics
        return cls(
            at=reading.at - play.began,
            created=play.track.created,
            bound=play.track.bound_count,
            running=play.observer.running,
            ended=play.observer.ended,
            queues=metrics.by(PENDING, "queue"),
            conflicts=metrics.total(CONFLICTS),
            urgent=metrics.by(URGENT, "result").get("granted"),
            attempts=metrics.total(ATTEMPTS),
            scheduler=reading.scheduler,
            server=reading.server,
        )


def rate(samples: Sequence[Sample], *, seconds: float = 2.0) -> float:
    """Return the binds per second over the last `seconds` of samples."""
    if len(samples) < 2:
        return 0.0
    last = samples[-1]
    first = next(sample for sample in samples if sample.at >= last.at - seconds)
    if first is last:
        first = samples[-2]
    return (last.bound - first.bound) / max(last.at - first.at, 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A finished run. Times are in seconds of one clock; `start` is the run's zero on it."""

    workload: Workload
    workers: int
    start: float
    track: Track
    #: The gangs in each queue.
    gangs: Sequence[Track] = ()
    observer: Observer
    #: Maximum seconds by which a pod was sent late.
    latest: float
    audit: Audit
    #: None if the run was cut short.
    figures: Figures | None
    #: The reasons why the run does not count as a success, as sentences.
    failures: Sequence[str]
    samples: Sequence[Sample]
    #: Pods of the workload that not even an empty node could hold, by reason.
    hopeless: dict[str, int]
    machine: dict[str, str]

    @property
    def ok(self) -> bool:
        return not self.failures

    def since_start(self, moments: Sequence[float]) -> list[float]:
        """Return the recorded moments of the track, ascending, in seconds of the run."""
        return sorted(moment - self.start for moment in moments if moment)

    @property
    def bind_seconds(self) -> float:
        """Return the seconds from the first sent create to the last observed bind."""
        sent, bound = self.since_start(self.track.sent), self.since_start(self.track.bound)
        return bound[-1] - sent[0] if bound and sent else 0.0

    @property
    def pods_a_second(self) -> float:
        return self.track.bound_count / self.bind_seconds if self.bind_seconds > 0 else 0.0

    @property
    def sent_to_bound(self) -> Latency:
        return percentiles(waits(self.track.sent, self.track.bound))

    @property
    def answered_to_bound(self) -> Latency:
        return percentiles(waits(self.track.answered, self.track.bound))

    @property
    def cpu_ms(self) -> float | None:
        """Return the scheduler's CPU milliseconds per pod."""
        return self.figures.cpu_ms if self.figures else None

    @property
    def server_cpu_ms(self) -> float | None:
        return self.figures.server_cpu_ms if self.figures else None

    def last(self, name: str) -> Any:
        """Return the last value of a field of samples that is not None; None if there is none."""
        values = [getattr(sample, name) for sample in self.samples]
        return next((value for value in reversed(values) if value is not None), None)

    def as_json(self) -> dict[str, Any]:
        """Return plain values, with times in milliseconds for names that end in `_ms`."""
        scheduler, server = self.last("scheduler"), self.last("server")
        return {
            "ok": self.ok,
            "failures": list(self.failures),
            "workload": self.workload.name,
            "notes": list(self.workload.notes),
            "nodes": len(self.workload.nodes),
            "workers": self.workers,
            "pods": len(self.workload.pods),
            "created": self.track.created,
            "bound": self.track.bound_count,
            "ended": self.observer.ended,
            "refused": dict(self.audit.refused),
            "hopeless": self.hopeless,
            "bindSeconds": round(self.bind_seconds, 3),
            "podsPerSecond": round(self.pods_a_second, 1),
            "gangs": {track.batch.name: _gangs_bound(track) for track in self.gangs},
            "createToBindMs": _milliseconds(self.sent_to_bound),
            "createAnsweredToBindMs": _milliseconds(self.answered_to_bound),
            "latestCreateMs": round(self.latest * 1000, 1),
            "conflicts": self.last("conflicts"),
            "urgentRetries": self.last("urgent"),
            "schedulingAttempts": self.last("attempts"),
            "schedulerCpuMsPerPod": _rounded(self.cpu_ms),
            "serverCpuMsPerPod": _rounded(self.server_cpu_ms),
            "schedulerRssBytes": scheduler.rss if scheduler else None,
            "serverRssBytes": server.rss if server else None,
            "allocation": {
                resource: _rounded(self.audit.allocation(resource))
                for resource in ("cpu", "memory", GPU_MILLI)
                if self.audit.allocation(resource) is not None
            },
            "watchReconnects": self.observer.resumed,
            "machine": self.machine,
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return the final table, as names and texts."""
        refused = sum(self.audit.refused.values())
        rows = [
            ("workload", self.workload.name),
            ("nodes, workers", f"{len(self.workload.nodes):,}, {self.workers}"),
            ("pods created", f"{self.track.created:,} of {len(self.workload.pods):,}"),
            ("pods bound", f"{self.track.bound_count:,}"),
            ("rejected: fit on no node", f"{refused:,}"),
            ("not bound although they fit", f"{len(self.audit.left_out):,}"),
            *((f"gangs bound completely, queue {track.batch.name}", _gangs_text(track)) for track in self.gangs),
            ("rate of binds", f"{self.pods_a_second:,.0f} pods/s over {self.bind_seconds:.2f} s"),
            ("create sent to bound, p50 / p90 / p99", _latency(self.sent_to_bound)),
            ("create response to bound, p50 / p90 / p99", _latency(self.answered_to_bound)),
            ("conflicts (node changed since the decision)", _count(self.last("conflicts"))),
            ("urgent retries (all candidates changed)", _count(self.last("urgent"))),
            ("scheduler CPU per pod", _cpu(self.cpu_ms)),
            ("API server CPU per pod", _cpu(self.server_cpu_ms)),
            ("scheduler, API server memory", f"{_mib(self.last('scheduler'))}, {_mib(self.last('server'))}"),
            ("CPU, memory requested of allocatable", self._allocations("cpu", "memory")),
        ]
        if self.audit.gpu_fill:
            rows.append(("GPU requested of allocatable", self._allocations(GPU_MILLI)))
        rows += [
            ("nodes over their allocatable", f"{len(self.audit.overcommitted):,}"),
            ("rejected by kubelets", f"{sum(self.observer.kubelet_refusals.values()):,}"),
        ]
        return rows

    def _allocations(self, *resources: str) -> str:
        shares = [self.audit.allocation(resource) for resource in resources]
        return ", ".join("-" if share is None else f"{share:.2%}" for share in shares)


def _gangs_bound(track: Track) -> int:
    """Return the number of gangs whose pods were all bound."""
    assert track.batch.gang is not None, "of gangs"
    size = track.batch.gang.size
    starts = range(0, track.batch.count, size)
    return sum(all(track.bound[start : start + size]) for start in starts)


def _gangs_text(track: Track) -> str:
    assert track.batch.gang is not None, "of gangs"
    size = track.batch.gang.size
    return f"{_gangs_bound(track)} of {track.batch.count // size}, each of {counted(size, 'pod')}"


def _milliseconds(latency: Latency) -> dict[str, float]:
    return {f"p{rank}": round(getattr(latency, f"p{rank}") or 0.0, 2) for rank in RANKS}


def _latency(latency: Latency) -> str:
    return " / ".join(duration(value) for value in (latency.p50, latency.p90, latency.p99))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def duration(milliseconds: float | None) -> str:
    """Return milliseconds below a second, else seconds; without a measurement 0."""
    value = milliseconds or 0.0
    return f"{value:,.1f} ms" if value < 1000 else f"{value / 1000:,.2f} s"


def _count(value: float | None) -> str:
    return "not published" if value is None else f"{value:,.0f}"


def _cpu(milliseconds: float | None) -> str:
    return "not measured" if milliseconds is None else f"{milliseconds:.3f} ms"


def _mib(usage: Usage | None) -> str:
    return "not measured" if usage is None else f"{usage.rss / (1 << 20):,.0f} MiB"
