"""Reads what the measured processes publish and cost: Prometheus texts and /proc, before and after, and differences.

A process of this machine is read from /proc, any other from the `process_*` series of its own /metrics. A value that
cannot be read (no /metrics, no such name, no /proc) is None and printed as not measured, never as zero. `machine`
describes the machine and `interpreter_milliseconds` its speed, without which figures have no meaning.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from kube_client.errors import RequestFailed
from kube_client.transport import Transport

from .requests import ask


def machine() -> dict[str, str]:
    """Return processor, kernel, and the versions that determine a run's speed, by name."""
    model = ""
    try:
        for text in Path("/proc/cpuinfo").read_text().splitlines():
            if text.startswith("model name"):
                model = text.partition(":")[2].strip()
                break
    except OSError:
        pass
    found = {
        "processor": f"{os.cpu_count()} x {model or platform.machine()}",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
    }
    for name in ("agent-scheduler", "uvloop", "msgspec", "orjson", "aiohttp", "numpy", "httptools"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def interpreter_milliseconds() -> float:
    """Return the CPU time in milliseconds of a million additions in a loop of this interpreter, the least of five.

    Machines of one model differ several times in speed, and a shared one by the hour: figures of two reports are
    comparable in units of this one.
    """
    return 1000.0 * min(_adding_seconds() for _ in range(5))


def _adding_seconds() -> float:
    total, began = 0, time.process_time()
    for number in range(1_000_000):
        total += number
    return time.process_time() - began


_SERIES = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)", re.MULTILINE)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: Seconds until a read of /metrics is given up: a busy loop answers late.
_SCRAPE_SECONDS = 20.0

PENDING = "scheduler_pending_pods"
ATTEMPTS = "scheduler_schedule_attempts_total"
CONFLICTS = "agent_scheduler_conflicts_total"
URGENT = "agent_scheduler_urgent_retries_total"
FLUSHED = "scheduler_pod_scheduled_after_flush_total"
REVALIDATIONS = "agent_scheduler_revalidations_total"
STALLS = "agent_scheduler_loop_lag_seconds"
EVENTS = "agent_scheduler_events_total"
HINTS = "scheduler_queueing_hint_execution_duration_seconds_count"


class Exposition:
    """A Prometheus text, by name."""

    def __init__(self, text: str) -> None:
        self._series: dict[str, list[tuple[dict[str, str], float]]] = {}
        for name, labels, value in _SERIES.findall(text):
            try:
                number = float(value)
            except ValueError:
                continue
            self._series.setdefault(name, []).append((dict(_LABEL.findall(labels)), number))

    def total(self, name: str) -> float | None:
        """Return the sum over all label values; None if the name is missing."""
        series = self._series.get(name)
        return None if series is None else sum(value for _, value in series)

    def by(self, name: str, label: str) -> dict[str, float]:
        """Return sums by the values of one label."""
        sums: dict[str, float] = {}
        for labels, value in self._series.get(name, ()):
            key = labels.get(label, "")
            sums[key] = sums.get(key, 0.0) + value
        return sums


@dataclass(frozen=True, slots=True)
class Usage:
    """The cost of a process and its children: CPU seconds so far, and resident bytes now."""

    cpu_seconds: float
    rss: int


def usage(pid: int, *, proc: Path = Path("/proc")) -> Usage | None:
    """Return the usage; None if the process has ended, or there is no /proc."""
    try:
        stat = (proc / str(pid) / "stat").read_text()
        pages = int((proc / str(pid) / "statm").read_text().split()[1])
        children = (proc / str(pid) / "task" / str(pid) / "children").read_text().split()
    except (OSError, ValueError, IndexError):
        return None
    # The command's name may contain spaces and parentheses; the fields follow the last one.
    fields = stat.rpartition(")")[2].split()
    cpu = (int(fields[11]) + int(fields[12])) / _TICKS
    rss = pages * _PAGE
    for child in children:
        below = usage(int(child), proc=proc)
        if below is not None:
            cpu += below.cpu_seconds
            rss += below.rss
    return Usage(cpu, rss)


@dataclass(frozen=True, slots=True)
class Reading:
    """The values at one moment. CPU times are seconds so far."""

    at: float
    scheduler: Usage | None
    server: Usage | None
    driver_cpu: float
    #: Empty if the scheduler serves no metrics.
    metrics: Exposition


class Meter:
    """Reads the values.

    `metrics` is a transport to the scheduler's own port; `pids` are of processes on this machine.
    """

    def __init__(
        self, *, scheduler: Sequence[int] = (), server: Sequence[int] = (), metrics: Transport | None = None
    ) -> None:
        self.scheduler = list(scheduler)
        self.server = list(server)
        #: A transport to the scheduler's /metrics.
        self.source = metrics

    async def metrics(self) -> Exposition:
        """Return the scheduler's current metrics; empty if it does not answer."""
        if self.source is None:
            return Exposition("")
        try:
            body = await ask(self.source, "GET", "/metrics", within=_SCRAPE_SECONDS)
        except RequestFailed:
            return Exposition("")
        return Exposition(body.decode(errors="replace"))

    async def read(self) -> Reading:
        exposition = await self.metrics()
        scheduler = _usage_of(self.scheduler)
        cpu = exposition.total("process_cpu_seconds_total")
        if scheduler is None and cpu is not None:
            scheduler = Usage(cpu, int(exposition.total("process_resident_memory_bytes") or 0))
        return Reading(time.monotonic(), scheduler, _usage_of(self.server), time.process_time(), exposition)

    def peak(self) -> float | None:
        """Return the scheduler's peak memory, in bytes."""
        peaks = [peak(pid) for pid in self.scheduler]
        found = [each for each in peaks if each is not None]
        return sum(found) if found else None


def _usage_of(pids: Sequence[int]) -> Usage | None:
    found = [each for each in map(usage, pids) if each is not None]
    if not found:
        return None
    return Usage(sum(each.cpu_seconds for each in found), sum(each.rss for each in found))


def peak(pid: int) -> int | None:
    """Return the peak resident bytes of a process; None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


def grown(before: Exposition, after: Exposition, name: str, **labels: str) -> float | None:
    """Return by how much a counter grew, None if it does not exist; one label may be given."""
    if after.total(name) is None:
        return None
    if labels:
        ((label, value),) = labels.items()
        return after.by(name, label).get(value, 0.0) - before.by(name, label).get(value, 0.0)
    return (after.total(name) or 0.0) - (before.total(name) or 0.0)


def longest(before: Exposition, after: Exposition, histogram: str) -> float | None:
    """Return the bound of the highest bucket that has grown: 0 if none has, None if the name does not exist.

    Values above all bounds count as the highest.
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
