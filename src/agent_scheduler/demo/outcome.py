"""What a run amounted to: one value that the final table, the report and --json are all made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .audit import Audit
from .load import LoadResult
from .measure import Sample, Usage
from .observe import Observation, percentiles
from .specs import GPU_MILLI, Workload

_RANKS = (50.0, 90.0, 99.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A finished run. Times in seconds of one clock; `start` is the run's zero on it."""

    workload: Workload
    nodes: int
    workers: int
    start: float
    load: LoadResult
    observation: Observation
    samples: list[Sample]
    audit: Audit
    #: Pods of the workload that not even an empty node could hold, by why.
    hopeless: dict[str, int]
    #: What cut the run short, if anything did.
    interruption: str
    #: Before the first pod was created and at the end.
    scheduler_before: Usage | None
    scheduler_after: Usage | None
    server_before: Usage | None
    server_after: Usage | None
    machine: dict[str, str]

    def failures(self) -> list[str]:
        """Everything that keeps the run from counting as a success, as sentences."""
        found = [self.interruption] if self.interruption else []
        found += [f"overcommit: {text}" for text in self.audit.overcommitted]
        found += [f"left out: {text}" for text in self.audit.left_out]
        found += [f"bound twice: {text}" for text in self.observation.rebound]
        found += [
            f"overcommit: kubelets refused {count} pods: {reason}"
            for reason, count in self.observation.kubelet_refusals.items()
        ]
        found += [f"{count} creates failed: {text}" for text, count in self.load.errors.items()]
        return found

    @property
    def ok(self) -> bool:
        return not self.failures()

    @property
    def bind_seconds(self) -> float:
        """From the first create being sent to the last bind being seen."""
        sent = [times.sent for times in self.load.times.values() if times.sent]
        bound = self.observation.bound_at
        return bound[-1] - min(sent) if bound and sent else 0.0

    @property
    def pods_a_second(self) -> float:
        return self.observation.bound / self.bind_seconds if self.bind_seconds > 0 else 0.0

    def scheduler_milliseconds_a_pod(self) -> float | None:
        return _cost(self.scheduler_before, self.scheduler_after, self.observation.bound)

    def server_milliseconds_a_pod(self) -> float | None:
        return _cost(self.server_before, self.server_after, self.observation.bound)

    def last(self, name: str) -> float | None:
        """The last value of a counter that was sampled; None if it never was."""
        values = [getattr(sample, name) for sample in self.samples]
        return next((value for value in reversed(values) if value is not None), None)

    def as_json(self) -> dict[str, Any]:
        """Plain values, times in milliseconds where the name says so."""
        to_bind = percentiles(self.observation.created_to_bound, _RANKS)
        from_answer = percentiles(self.observation.answered_to_bound, _RANKS)
        return {
            "ok": self.ok,
            "failures": self.failures(),
            "workload": self.workload.name,
            "notes": list(self.workload.notes),
            "nodes": self.nodes,
            "workers": self.workers,
            "pods": len(self.workload.pods),
            "created": self.load.created,
            "bound": self.observation.bound,
            "ended": self.observation.ended,
            "refused": dict(self.audit.refused),
            "hopeless": self.hopeless,
            "bindSeconds": round(self.bind_seconds, 3),
            "podsPerSecond": round(self.pods_a_second, 1),
            "createToBindMs": _milliseconds(to_bind),
            "createAnsweredToBindMs": _milliseconds(from_answer),
            "latestCreateMs": round(self.load.latest * 1000, 1),
            "conflicts": self.last("conflicts"),
            "urgentRetries": self.last("urgent"),
            "schedulingAttempts": self.last("attempts"),
            "schedulerCpuMsPerPod": _rounded(self.scheduler_milliseconds_a_pod()),
            "serverCpuMsPerPod": _rounded(self.server_milliseconds_a_pod()),
            "schedulerRssBytes": self.scheduler_after.rss if self.scheduler_after else None,
            "serverRssBytes": self.server_after.rss if self.server_after else None,
            "allocation": {
                resource: _rounded(self.audit.allocation(resource))
                for resource in ("cpu", "memory", GPU_MILLI)
                if self.audit.allocation(resource) is not None
            },
            "nodesWithSplitCards": self.audit.split_cards,
            "watchReconnects": self.observation.reconnects,
            "machine": self.machine,
        }

    def rows(self) -> list[tuple[str, str]]:
        """The final table, as names and texts."""
        p50, p90, p99 = percentiles(self.observation.created_to_bound, _RANKS)
        a50, a90, a99 = percentiles(self.observation.answered_to_bound, _RANKS)
        refused = sum(self.audit.refused.values())
        rows = [
            ("workload", self.workload.name),
            ("nodes, workers", f"{self.nodes:,}, {self.workers}"),
            ("pods created", f"{self.load.created:,} of {len(self.workload.pods):,}"),
            ("pods bound", f"{self.observation.bound:,}"),
            ("refused: no node has room", f"{refused:,}"),
            ("left out though they fit", f"{len(self.audit.left_out):,}"),
            ("rate of binding", f"{self.pods_a_second:,.0f} pods/s over {self.bind_seconds:.2f} s"),
            ("create sent to bound, p50 / p90 / p99", f"{duration(p50)} / {duration(p90)} / {duration(p99)}"),
            (
                "create answered to bound, p50 / p90 / p99",
                f"{duration(a50)} / {duration(a90)} / {duration(a99)}",
            ),
            ("conflicts, urgent retries", f"{_count(self.last('conflicts'))}, {_count(self.last('urgent'))}"),
            ("scheduler CPU a pod", _cpu(self.scheduler_milliseconds_a_pod())),
            ("API server CPU a pod", _cpu(self.server_milliseconds_a_pod())),
            ("scheduler, API server memory", f"{_mib(self.scheduler_after)}, {_mib(self.server_after)}"),
            ("CPU, memory requested of allocatable", self._allocations("cpu", "memory")),
        ]
        if self.audit.gpu_fill:
            rows.append(("GPU requested of allocatable", self._allocations(GPU_MILLI)))
            rows.append(("nodes whose GPU shares need a split card", f"{self.audit.split_cards:,}"))
        rows += [
            ("nodes over their allocatable", f"{len(self.audit.overcommitted):,}"),
            ("refused by kubelets", f"{sum(self.observation.kubelet_refusals.values()):,}"),
        ]
        return rows

    def _allocations(self, *resources: str) -> str:
        shares = [self.audit.allocation(resource) for resource in resources]
        return ", ".join("-" if share is None else f"{share:.2%}" for share in shares)


def _cost(before: Usage | None, after: Usage | None, pods: int) -> float | None:
    if before is None or after is None or not pods:
        return None
    return 1000 * (after.cpu_seconds - before.cpu_seconds) / pods


def _milliseconds(values: tuple[float, ...]) -> dict[str, float]:
    return {f"p{rank:g}": round(value * 1000, 2) for rank, value in zip(_RANKS, values, strict=True)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def duration(seconds: float) -> str:
    """As milliseconds below a second, else as seconds."""
    return f"{seconds * 1000:,.1f} ms" if seconds < 1 else f"{seconds:,.2f} s"


def _count(value: float | None) -> str:
    return "not published" if value is None else f"{value:,.0f}"


def _cpu(milliseconds: float | None) -> str:
    return "not measured" if milliseconds is None else f"{milliseconds:.3f} ms"


def _mib(usage: Usage | None) -> str:
    return "not measured" if usage is None else f"{usage.rss / (1 << 20):,.0f} MiB"
