"""The figures of a run: what was seen of its pods, and by what the readings before and after differ."""

from __future__ import annotations

from agent_scheduler.demo.measure import ATTEMPTS, CONFLICTS, URGENT

from .meters import FLUSHED, REVALIDATIONS, STALLS, Reading, grown, longest
from .result import Figures, Latency, per_pod, percentiles, rate, waits
from .watching import Track


def figures_of(track: Track, before: Reading, after: Reading, *, began: float | None) -> Figures:
    """`began` is when the first pod was sent; None if all were there before.

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
        cpu_ms=per_pod(_less(after.scheduler_cpu, before.scheduler_cpu), pods),
        server_cpu_ms=per_pod(_less(after.server_cpu, before.server_cpu), pods),
        driver_cpu_ms=per_pod(after.driver_cpu - before.driver_cpu, pods),
        rss_mb=megabytes(after.scheduler_rss),
        attempts=_each(grown(first, last, ATTEMPTS), pods),
        conflicts=grown(first, last, CONFLICTS),
        revalidations=grown(first, last, REVALIDATIONS),
        urgent=grown(first, last, URGENT, result="granted"),
        flushed=grown(first, last, FLUSHED),
        stall_ms=None if stall is None else stall * 1000,
    )


def megabytes(amount: float | None) -> float | None:
    return None if amount is None else amount / 2**20


def _less(after: float | None, before: float | None) -> float | None:
    """None without the first; a process that was not there before had cost nothing."""
    return None if after is None else after - (before or 0.0)


def _each(amount: float | None, pods: int) -> float | None:
    return amount / pods if amount is not None and pods else None
