"""The demo's last screen: the workload, the result, recorded CPU of other schedulers, and what to try next."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from apimachinery.plural import counted
from apimachinery.visible import visible

from .outcome import Outcome, duration
from .view import fill_bins, sparkline


class Recorded(NamedTuple):
    """The recorded CPU of a scheduler's process per pod, in milliseconds: the lowest and the highest of its runs.

    All of them ran in turn on one real API server with 1,000 nodes; docs/comparison.md describes the measurement.
    """

    name: str
    load: str
    lowest: float
    highest: float


_BURST: Final = "5,000 pods"
_GANGS: Final = "500 gangs of 10 pods"
RECORDED: Final = (
    Recorded("agent-scheduler", _BURST, 0.32, 0.53),
    Recorded("kube-scheduler 1.36.2", _BURST, 3.54, 4.19),
    Recorded("agent-scheduler", _GANGS, 1.13, 1.40),
    Recorded("Volcano, in sessions", _GANGS, 11.5, 12.1),
)


def summary(outcome: Outcome, report: Path | None) -> Panel:
    """Return the summary, at most 24 lines of 100 columns."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column()
    rows.add_row("Workload", _asked(outcome))
    rows.add_row("Result", _got(outcome))
    rows.add_row("Nodes", _where(outcome))
    rows.add_row("Compare", _others())
    rows.add_row("Next steps", _next(report))
    return Panel(rows, title="Summary", title_align="left", border_style="blue" if outcome.ok else "red")


def _asked(outcome: Outcome) -> str:
    sent = outcome.since_start(outcome.track.sent)
    text = f"{visible(outcome.workload.name)}: {counted(outcome.track.created, 'pod')}"
    if len(sent) > 1:
        text += f" within {_seconds(sent[-1] - sent[0])}"
    text += f", on {counted(len(outcome.workload.nodes), 'node')}"
    gangs = [(track.batch.name, track.batch.count // track.batch.gang.size, track.batch.gang.size)
             for track in outcome.gangs if track.batch.gang is not None]  # fmt: skip
    for queue, count, size in gangs:
        text += f"; {counted(count, 'gang')} of {counted(size, 'pod')} in queue {visible(queue)}"
    return text


def _got(outcome: Outcome) -> str:
    bound, latency = outcome.track.bound_count, outcome.sent_to_bound
    text = f"1 pod is bound within {duration(latency.p99)}"
    if bound != 1:
        text = f"{bound:,} pods are bound, half of them within {duration(latency.p50)}, "
        text += f"99 % within {duration(latency.p99)}"
    refused = sum(outcome.audit.refused.values())
    if refused:
        text += f"; {refused:,} fit on no node and report it"
    if outcome.cpu_ms is not None:
        text += f". The scheduler used {outcome.cpu_ms:.2f} ms of CPU per pod"
    return f"{text}."


def _where(outcome: Outcome) -> Text:
    fill = outcome.audit.cpu_fill
    over = len(outcome.audit.overcommitted)
    said = "none is over its allocatable" if not over else f"{over:,} ARE OVER their allocatable"
    text = Text("by requested CPU: empty ")
    text.append(sparkline(fill_bins(fill)), style="cyan")
    return text.append(f" full; {said}, by the API's own objects.")


def _others() -> str:
    lines = [f"{each.name}, {each.load}: {each.lowest:.3g} to {each.highest:.3g} ms" for each in RECORDED]
    return "\n".join(("CPU per pod, recorded with a real API server on two cores, not measured now:", *lines))


def _seconds(seconds: float) -> str:
    if seconds < 0.1:
        return duration(1000 * seconds)
    return f"{seconds:,.1f} s" if seconds < 10 else f"{seconds:,.0f} s"


def _next(report: Path | None) -> str:
    lines = [
        'make demo DEMO_ARGS="--story gates"   pods that wait for their queue, and an autoscaler',
        'make demo DEMO_ARGS="--story jobs"    a job whose tasks depend on one another',
        ".venv/bin/agent-scheduler cluster     an embedded cluster for kubectl (docs/quickstart.md)",
    ]
    if report is not None:
        lines.insert(0, f"open {report}")
    return "\n".join(lines)
