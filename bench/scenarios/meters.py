"""What the processes under test have cost, and what the scheduler says of itself: read before and after, compared.

A process of this machine is read from /proc, any other from the `process_*` series of its own /metrics. What cannot
be read is None, and is shown as not measured.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_scheduler.demo.asking import ask
from agent_scheduler.demo.measure import Exposition, usage
from agent_scheduler.kube.errors import RequestFailed
from agent_scheduler.kube.transport import Transport

FLUSHED = "scheduler_pod_scheduled_after_flush_total"
REVALIDATIONS = "agent_scheduler_revalidations_total"
STALLS = "agent_scheduler_loop_lag_seconds"
EVENTS = "agent_scheduler_events_total"
#: Seconds until /metrics is given up: a busy loop serves it late.
_SCRAPE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Reading:
    """One moment. CPU times are seconds so far."""

    at: float
    scheduler_cpu: float | None
    scheduler_rss: float | None
    server_cpu: float | None
    driver_cpu: float
    #: Empty where the scheduler serves no metrics.
    metrics: Exposition


class Meter:
    """Reads them. `metrics` leads to the scheduler's own port; `pids` are of processes on this machine."""

    def __init__(
        self,
        *,
        scheduler: Sequence[int] = (),
        server: Sequence[int] = (),
        metrics: Transport | None = None,
    ) -> None:
        self.scheduler = list(scheduler)
        self.server = list(server)
        self._metrics = metrics

    def use(self, metrics: Transport | None) -> None:
        """Reads the metrics there from now on."""
        self._metrics = metrics

    async def metrics(self) -> Exposition:
        """What the scheduler publishes now; empty if it does not answer."""
        if self._metrics is None:
            return Exposition("")
        try:
            body = await ask(self._metrics, "GET", "/metrics", within=_SCRAPE_SECONDS)
        except RequestFailed:
            return Exposition("")
        return Exposition(body.decode(errors="replace"))

    async def read(self) -> Reading:
        exposition = await self.metrics()
        cpu, rss = _cost(self.scheduler)
        if cpu is None:
            cpu = exposition.total("process_cpu_seconds_total")
            rss = exposition.total("process_resident_memory_bytes")
        return Reading(
            at=time.monotonic(),
            scheduler_cpu=cpu,
            scheduler_rss=rss,
            server_cpu=_cost(self.server)[0],
            driver_cpu=time.process_time(),
            metrics=exposition,
        )

    def peak(self) -> float | None:
        """The most memory that the scheduler ever had, in bytes."""
        peaks = [_peak(pid) for pid in self.scheduler]
        found = [peak for peak in peaks if peak is not None]
        return sum(found) if found else None


def _cost(pids: Sequence[int]) -> tuple[float | None, float | None]:
    """CPU seconds and resident bytes of these processes."""
    found = [cost for cost in map(usage, pids) if cost is not None]
    if not found:
        return None, None
    return sum(cost.cpu_seconds for cost in found), float(sum(cost.rss for cost in found))


def _peak(pid: int) -> float | None:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("VmHWM:"):
            return float(line.split()[1]) * 1024
    return None


def grown(before: Exposition, after: Exposition, name: str, **labels: str) -> float | None:
    """By how much a counter grew, None if there is none; one label may be given."""
    if after.total(name) is None:
        return None
    if labels:
        ((label, value),) = labels.items()
        return after.by(name, label).get(value, 0.0) - before.by(name, label).get(value, 0.0)
    return (after.total(name) or 0.0) - (before.total(name) or 0.0)


def longest(before: Exposition, after: Exposition, histogram: str) -> float | None:
    """The bound of the highest bucket that anything fell into since: 0 if nothing did, None if there is no such name.

    What is above all bounds counts as the highest.
    """
    name = f"{histogram}_bucket"
    now, then = after.by(name, "le"), before.by(name, "le")
    if not now:
        return None
    bounds = sorted(now, key=float)
    counts = [now[bound] - then.get(bound, 0.0) for bound in bounds]
    if not counts[-1]:
        return 0.0
    reached = next(number for number, count in enumerate(counts) if count >= counts[-1])
    return float(bounds[max(0, min(reached, len(bounds) - 2))])
