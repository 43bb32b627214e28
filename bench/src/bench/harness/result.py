"""The figures of one run of a case: pure functions of the observed times, and their form as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .measure import ATTEMPTS, CONFLICTS, FLUSHED, HINTS, REVALIDATIONS, STALLS, URGENT, Reading, Usage, grown, longest
from .watching import Track

RANKS = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds; None if nothing was measured."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    most: float | None = None


@dataclass(slots=True, kw_only=True)
class Figures:
    """The figures of a run. None for what could not be measured, or has no meaning for the case."""

    pods: int = 0
    pods_per_second: float | None = None
    #: From the response to the create until the watch delivers the bind.
    latency: Latency = field(default_factory=Latency)
    #: From the time when an open loop's pod was due, which precedes its create if the server is behind.
    from_due: Latency = field(default_factory=Latency)
    #: CPU milliseconds per pod: the scheduler's, the cluster's, and the benchmark's own.
    cpu_ms: float | None = None
    server_cpu_ms: float | None = None
    driver_cpu_ms: float | None = None
    #: The scheduler's memory at the end and at its peak, MB.
    rss_mb: float | None = None
    peak_mb: float | None = None
    #: Attempts to schedule any pod, and calls of queueing hints, per measured pod.
    attempts: float | None = None
    hints: float | None = None
    conflicts: float | None = None
    revalidations: float | None = None
    urgent: float | None = None
    flushed: float | None = None
    #: The longest time that the scheduler's event loop was blocked, ms, rounded up to a bucket's bound.
    stall_ms: float | None = None
    #: Maximum delay of the benchmark's own event loop, ms, which limits the precision of latency.
    driver_lag_ms: float | None = None
    #: Maximum delay with which an open loop's pod was sent, ms.
    sent_late_ms: float | None = None
    #: Binds per second of a minimal client on the same cluster, and the scheduler's share of them.
    bare_per_second: float | None = None
    of_bare: float | None = None
    setup_seconds: float = 0.0
    measured_seconds: float = 0.0


@dataclass(slots=True, kw_only=True)
class Run:
    """One run: its figures, or why it is refused."""

    scenario: str
    case: str
    number: int
    at: float = 0.0
    series: str = ""
    nodes: int = 0
    seconds: float = 0.0
    refused: list[str] = field(default_factory=list)
    figures: Figures | None = None


def percentiles(values: Sequence[float]) -> Latency:
    """Return the percentiles of seconds, in milliseconds."""
    if not len(values):
        return Latency()
    p50, p90, p99 = (float(value) for value in np.percentile(values, RANKS))
    return Latency(p50 * 1000, p90 * 1000, p99 * 1000, float(max(values)) * 1000)


def waits(since: Sequence[float], bound: Sequence[float]) -> list[float]:
    """Return the seconds from each time to the bind, for pods with both; 0 for a bind seen before the response."""
    start, end = np.asarray(since), np.asarray(bound)
    both = (start > 0) & (end > 0)
    waited: list[float] = np.maximum(0.0, end[both] - start[both]).tolist()
    return waited


def rate(bound: Sequence[float], *, since: float | None) -> float | None:
    """Return the binds per second up to the last: from `since`, or from the first, which then does not count."""
    times = [moment for moment in bound if moment]
    if not times:
        return None
    start, count = (since, len(times)) if since is not None else (min(times), len(times) - 1)
    seconds = max(times) - start
    return count / seconds if seconds > 0 and count else None


def write_runs(file: Path, runs: Sequence[Run]) -> None:
    """Write one JSON object per line."""
    file.write_text("".join(json.dumps(asdict(run)) + "\n" for run in runs))


def read_runs(file: Path) -> list[Run]:
    return [run_of(json.loads(line)) for line in file.read_text().splitlines() if line.strip()]


def run_of(data: Mapping[str, Any]) -> Run:
    """Return the run that `asdict` converted."""
    figures = data.get("figures")
    if figures is not None:
        figures = Figures(
            **{**figures, "latency": Latency(**figures["latency"]), "from_due": Latency(**figures["from_due"])}
        )
    return Run(**{**data, "figures": figures})


def per_pod(seconds: float | None, pods: int) -> float | None:
    """Convert CPU seconds of all pods to milliseconds per pod."""
    if seconds is None or not pods or math.isnan(seconds):
        return None
    return seconds / pods * 1000


def figures_of(track: Track, before: Reading, after: Reading, *, began: float | None) -> Figures:
    """Compute the figures of a run. `began` is when the first pod was sent; None if all existed before.

    Then none has a latency, the rate counts from the first bind, and stalls would be those of a start.
    """
    pods = track.bound_count
    first, last = before.metrics, after.metrics
    stall = None if began is None else longest(first, last, STALLS)
    return Figures(
        pods=pods,
        pods_per_second=rate(track.bound, since=began),
        latency=Latency() if began is None else percentiles(waits(track.answered, track.bound)),
        from_due=percentiles(waits(track.due, track.bound)),
        cpu_ms=_cpu_ms(before.scheduler, after.scheduler, pods),
        server_cpu_ms=_cpu_ms(before.server, after.server, pods),
        driver_cpu_ms=per_pod(after.driver_cpu - before.driver_cpu, pods),
        rss_mb=None if after.scheduler is None else after.scheduler.rss / 2**20,
        attempts=_each(grown(first, last, ATTEMPTS), pods),
        hints=_each(grown(first, last, HINTS), pods),
        conflicts=grown(first, last, CONFLICTS),
        revalidations=grown(first, last, REVALIDATIONS),
        urgent=grown(first, last, URGENT, result="granted"),
        flushed=grown(first, last, FLUSHED),
        stall_ms=None if stall is None else stall * 1000,
    )


def _cpu_ms(before: Usage | None, after: Usage | None, pods: int) -> float | None:
    """Return CPU milliseconds per pod; a process that did not exist before had cost nothing."""
    if after is None:
        return None
    return per_pod(after.cpu_seconds - (before.cpu_seconds if before else 0.0), pods)


def _each(amount: float | None, pods: int) -> float | None:
    return amount / pods if amount is not None and pods else None
