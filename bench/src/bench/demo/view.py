"""Displays a run while it continues: a live screen on a terminal, one line per second elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from apimachinery.visible import visible, visible_lines
from bench.harness.result import Latency

from .outcome import Outcome, Sample, duration

#: Reasons that the final table lists.
_REFUSALS = 8
_BLOCKS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The values that can be displayed now. `fill` is the requested share of CPU, node by node."""

    title: str
    total: int
    sample: Sample
    bound_rate: float
    created_rate: float
    latency: Latency
    fill: Sequence[float]
    #: Binds per second, oldest first.
    history: Sequence[float]


def sparkline(values: Sequence[float], *, width: int = 48) -> str:
    """Return the last `width` values as blocks, scaled to the largest; a space for zero."""
    shown = list(values)[-width:]
    top = max(shown, default=0.0)
    return "".join(_BLOCKS[1 + round(7 * value / top)] if value > 0 else _BLOCKS[0] for value in shown)


def fill_bins(fill: Sequence[float], *, bins: int = 10) -> list[int]:
    """Return how many nodes are in each tenth of fill; values beyond 1 are in the last."""
    counts = [0] * bins
    for share in fill:
        counts[min(int(share * bins), bins - 1)] += 1
    return counts


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def line(frame: Frame) -> str:
    """Return one frame as one line."""
    sample = frame.sample
    p50, p99 = frame.latency.p50, frame.latency.p99
    queues = " ".join(f"{name} {count:,.0f}" for name, count in sample.queues.items() if count) or "-"
    return (
        f"{sample.at:6.1f} s  created {sample.created:,}  bound {sample.bound:,}/{frame.total:,}  "
        f"{frame.bound_rate:,.0f}/s  p50 {duration(p50)} p99 {duration(p99)}  queues: {queues}  "
        f"conflicts {_number(sample.conflicts)}  running {sample.running:,}  ended {sample.ended:,}"
    )


class LineView(nullcontext[None]):
    """A line per second, for logs and pipes."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self.say = write
        self._next = 0.0

    def show(self, frame: Frame) -> None:
        if frame.sample.at >= self._next:
            self._next = frame.sample.at + 1.0
            self.say(line(frame))


class LiveView(Live):
    """A screen that rich redraws."""

    def __init__(self, console: Console) -> None:
        super().__init__(console=console, auto_refresh=False, transient=True)

    def say(self, text: str) -> None:
        self.console.print(Text(visible_lines(text)))

    def show(self, frame: Frame) -> None:
        self.update(screen(frame), refresh=True)


#: Displays frames; a context manager for as long as the run lasts.
View = LineView | LiveView


def _pairs(*rows: tuple[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name, text in rows:
        table.add_row(name, text)
    return table


def screen(frame: Frame) -> Panel:
    """Return one frame as a panel, about 80 columns wide."""
    sample = frame.sample
    progress = Table.grid(padding=(0, 1), expand=True)
    progress.add_column(ratio=1)
    progress.add_column(justify="right")
    bar = ProgressBar(total=max(frame.total, 1), completed=sample.bound, complete_style="green")
    progress.add_row(bar, f"{sample.bound:,} of {frame.total:,} bound")
    pods = _pairs(
        ("created", f"{sample.created:,}"),
        ("created/s", f"{frame.created_rate:,.0f}"),
        ("bound/s", f"{frame.bound_rate:,.0f}"),
        ("running", f"{sample.running:,}"),
        ("ended", f"{sample.ended:,}"),
    )
    latency = _pairs(*((name, duration(getattr(frame.latency, name))) for name in ("p50", "p90", "p99")))
    queues = _pairs(
        *((visible(name), _number(count)) for name, count in (sample.queues or {"not published": 0.0}).items())
    )
    races = _pairs(("conflicts", _number(sample.conflicts)), ("urgent retries", _number(sample.urgent)))
    counts = fill_bins(frame.fill)
    fill = Table.grid(padding=(0, 1))
    fill.add_row(Text("node CPU 0%", style="dim"), Text(sparkline(counts), style="cyan"), Text("100%", style="dim"))
    fullest = max(frame.fill, default=0.0)
    fill.add_row(Text("fullest", style="dim"), Text(f"{fullest:.0%}"), Text(""))
    return Panel(
        Group(
            progress,
            Text(""),
            Columns(
                [
                    Panel(pods, title="pods"),
                    Panel(latency, title="create to bound"),
                    Panel(queues, title="queues"),
                    Panel(races, title="races"),
                ]
            ),
            Panel(Text(sparkline(frame.history, width=70), style="green"), title="bound per second", height=3),
            Panel(fill, title="node fill"),
        ),
        title=f"{frame.title}  {sample.at:.1f} s",
        border_style="blue",
    )


def final_table(outcome: Outcome) -> Group:
    """Return the end of a run: figures, rejections by reason, and the verdict."""
    table = Table(title="result", show_header=False, title_justify="left")
    table.add_column()
    table.add_column(justify="right")
    for name, text in outcome.rows():
        table.add_row(name, text)
    parts: list[Table | Text] = [table]
    if outcome.audit.refused:
        refused = Table(title="rejected, by the scheduler's reasons", title_justify="left")
        refused.add_column("pods", justify="right")
        refused.add_column("reason")
        groups = outcome.audit.refused_by_gist()
        for text, count, _ in groups[:_REFUSALS]:
            refused.add_row(f"{count:,}", Text(visible(text)))
        if len(groups) > _REFUSALS:
            rest = sum(count for _, count, _ in groups[_REFUSALS:])
            refused.add_row(f"{rest:,}", f"{len(groups) - _REFUSALS} more reasons: see the report")
        parts.append(refused)
    failures = outcome.failures
    if failures:
        parts += [Text(f"FAILED  {visible(text)}", style="bold red") for text in failures[:10]]
        if len(failures) > 10:
            parts.append(Text(f"FAILED  and {len(failures) - 10:,} more", style="bold red"))
    else:
        text = "OK  every pod that fits is bound, and no node is over its allocatable"
        parts.append(Text(text, style="bold green"))
    return Group(*parts)
