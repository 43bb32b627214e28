"""What the processes publish and cost: Prometheus texts, and /proc.

A measure that is not there (no /metrics, no such name, no /proc) is None and shown as such, never a zero.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agent_scheduler.kube.errors import RequestFailed
from agent_scheduler.kube.transport import Transport

from .asking import ask

_SERIES = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)", re.MULTILINE)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: A scrape that takes longer than this would be older than the next sample.
_SCRAPE_SECONDS = 5.0

PENDING = "scheduler_pending_pods"
ATTEMPTS = "scheduler_schedule_attempts_total"
CONFLICTS = "agent_scheduler_conflicts_total"
URGENT = "agent_scheduler_urgent_retries_total"


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
        """The sum over all label values; None if the name is not there."""
        series = self._series.get(name)
        return None if series is None else sum(value for _, value in series)

    def by(self, name: str, label: str) -> dict[str, float]:
        """Sums by the values of one label."""
        sums: dict[str, float] = {}
        for labels, value in self._series.get(name, ()):
            key = labels.get(label, "")
            sums[key] = sums.get(key, 0.0) + value
        return sums


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process and its children have cost: CPU seconds so far, and resident bytes now."""

    cpu_seconds: float
    rss: int


def usage(pid: int, *, proc: Path = Path("/proc")) -> Usage | None:
    """None when the process is gone, or there is no /proc."""
    try:
        stat = (proc / str(pid) / "stat").read_text()
        pages = int((proc / str(pid) / "statm").read_text().split()[1])
        children = (proc / str(pid) / "task" / str(pid) / "children").read_text().split()
    except (OSError, ValueError, IndexError):
        return None
    # The command's name may hold spaces and parentheses; the fields follow the last one.
    fields = stat.rpartition(")")[2].split()
    cpu = (int(fields[11]) + int(fields[12])) / _TICKS
    rss = pages * _PAGE
    for child in children:
        below = usage(int(child), proc=proc)
        if below is not None:
            cpu += below.cpu_seconds
            rss += below.rss
    return Usage(cpu, rss)


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


class Sampler:
    """Takes samples and keeps them all. `metrics` leads to the scheduler's own port, if it has one."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        metrics: Transport | None,
        scheduler_pid: int | None,
        server_pid: int | None,
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._scheduler_pid = scheduler_pid
        self._server_pid = server_pid
        self._start = clock()
        self.samples: list[Sample] = []

    def restart(self) -> None:
        """Counts time from now on."""
        self._start = self._clock()
        self.samples.clear()

    @property
    def start(self) -> float:
        return self._start

    async def take(self, *, created: int, bound: int, running: int, ended: int) -> Sample:
        """One sample; a scrape that fails leaves its fields None."""
        text = Exposition("")
        if self._metrics is not None:
            try:
                body = await ask(self._metrics, "GET", "/metrics", within=_SCRAPE_SECONDS)
                text = Exposition(body.decode(errors="replace"))
            except RequestFailed:
                pass
        sample = Sample(
            at=self._clock() - self._start,
            created=created,
            bound=bound,
            running=running,
            ended=ended,
            queues=text.by(PENDING, "queue"),
            conflicts=text.total(CONFLICTS),
            urgent=text.by(URGENT, "result").get("granted"),
            attempts=text.total(ATTEMPTS),
            scheduler=usage(self._scheduler_pid) if self._scheduler_pid is not None else None,
            server=usage(self._server_pid) if self._server_pid is not None else None,
        )
        self.samples.append(sample)
        return sample


def rate(samples: list[Sample], *, seconds: float = 2.0) -> float:
    """Binds a second over the last `seconds` of samples."""
    if len(samples) < 2:
        return 0.0
    last = samples[-1]
    first = next(sample for sample in samples if sample.at >= last.at - seconds)
    if first is last:
        first = samples[-2]
    return (last.bound - first.bound) / max(last.at - first.at, 1e-9)
