"""The report's plots: medians as lines with the range of their runs, each an SVG file for light and dark pages."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bench.harness.plots import COLORS, log_axis, standalone, svg
from bench.harness.result import Figures, Run

from .parts import Part


class Point(NamedTuple):
    at: float
    median: float
    least: float
    most: float


Series = Mapping[str, Sequence[Point]]


def points(runs: Sequence[Run], of: Callable[[Figures], float | None]) -> list[Point]:
    """Return one point for each value of `at`, in its order, of the runs that count."""
    values: dict[float, list[float]] = {}
    for run in runs:
        value = of(run.figures) if run.figures is not None and not run.refused else None
        if value is not None:
            values.setdefault(run.at, []).append(value)
    return [Point(at, statistics.median(each), min(each), max(each)) for at, each in sorted(values.items())]


def by_series(runs: Sequence[Run], of: Callable[[Figures], float | None]) -> dict[str, list[Point]]:
    """Return the points of each series, without empty ones."""
    names = dict.fromkeys(run.series for run in runs)
    found = {name: points([run for run in runs if run.series == name], of) for name in names}
    return {name: each for name, each in found.items() if each}


def lines(title: str, series: Series, *, across: str, up: str, log_x: bool = False, log_y: bool = False) -> str:
    """Return the SVG of a line plot; empty if there is no data."""
    shown = {name: each for name, each in series.items() if each}
    if not shown:
        return ""

    def draw(axes: Any) -> None:
        axes.set_title(title)
        for (name, each), color in zip(shown.items(), COLORS * 2, strict=False):
            x = [point.at for point in each]
            axes.plot(x, [point.median for point in each], label=name, color=color, marker="o", markersize=4)
            low, high = [point.least for point in each], [point.most for point in each]
            axes.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
        if log_x:
            # Linear near 0, which has no logarithm.
            axes.set_xscale("symlog", linthresh=max(1.0, min(_positive(shown))))
        if log_y:
            axes.set_yscale("log")
            log_axis(axes.yaxis)
        else:
            axes.set_ylim(bottom=0)
        ticks = sorted({point.at for each in shown.values() for point in each})
        axes.set_xticks(ticks, [_short(tick) for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        if len(shown) > 1 or next(iter(shown)):
            axes.legend()

    return standalone(svg(title, draw))


def bars(title: str, groups: Mapping[str, Mapping[str, float]], *, up: str) -> str:
    """Return the SVG of grouped bars (name -> series -> value); empty without data."""
    names = list(groups)
    series = list(dict.fromkeys(name for each in groups.values() for name in each))
    if not names or not series:
        return ""

    def draw(axes: Any) -> None:
        axes.set_title(title)
        width = 0.8 / len(series)
        for number, (name, color) in enumerate(zip(series, COLORS, strict=False)):
            where = [index + number * width for index, each in enumerate(groups.values()) if name in each]
            values = [each[name] for each in groups.values() if name in each]
            axes.bar(where, values, width=width * 0.92, align="edge", color=color, label=name)
        middle = [index + 0.4 for index in range(len(names))]
        axes.set_xticks(middle, names, rotation=35, ha="right", rotation_mode="anchor", fontsize=8)
        axes.grid(visible=False, axis="x")
        axes.set_ylabel(up)
        # Space for the legend.
        axes.set_ylim(top=1.3 * max(value for each in groups.values() for value in each.values()))
        axes.legend(loc="upper right", ncols=len(series))

    return standalone(svg(title, draw))


def _short(number: float) -> str:
    return f"{number / 1000:g}k" if number >= 10_000 else f"{number:,.0f}"


def _positive(series: Series) -> list[float]:
    return [point.at for each in series.values() for point in each if point.at > 0] or [1.0]


def _rate(figures: Figures) -> float | None:
    return figures.pods_per_second


def _nodes_rate(runs: Mapping[str, Sequence[Run]]) -> str:
    series = {
        "pods/s": points(runs.get("nodes", ()), _rate),
        "binds/s, alone": points(runs.get("nodes", ()), lambda figures: figures.bare_per_second),
        "pods/s of a backlog": points(runs.get("backlog", ()), _rate),
    }
    return lines("Throughput by nodes", series, across="nodes", up="a second", log_x=True)


def _nodes_cpu(runs: Mapping[str, Sequence[Run]]) -> str:
    series = {
        "scheduler": points(runs.get("nodes", ()), lambda figures: figures.cpu_ms),
        "cluster": points(runs.get("nodes", ()), lambda figures: figures.server_cpu_ms),
    }
    return lines("CPU per pod by nodes", series, across="nodes", up="milliseconds per pod", log_x=True)


def _latency(title: str, chosen: Sequence[Run], across: str) -> str:
    series = {
        "max": points(chosen, lambda figures: figures.latency.most),
        "p99": points(chosen, lambda figures: figures.latency.p99),
        "p90": points(chosen, lambda figures: figures.latency.p90),
        "p50": points(chosen, lambda figures: figures.latency.p50),
    }
    return lines(title, series, across=across, up="milliseconds", log_x=True, log_y=True)


def _workers(runs: Mapping[str, Sequence[Run]]) -> str:
    series = by_series(runs.get("workers", ()), _rate)
    return lines("Throughput by workers", series, across="workers", up="pods per second", log_x=True)


def _memory(runs: Mapping[str, Sequence[Run]]) -> str:
    series = by_series(runs.get("pods", ()), lambda figures: figures.peak_mb)
    return lines("Scheduler's memory by pods", series, across="pods", up="MB at the peak", log_x=True)


def _waiting(runs: Mapping[str, Sequence[Run]]) -> str:
    series = {"": points(runs.get("waiting", ()), lambda figures: figures.cpu_ms)}
    return lines("CPU per pod while others wait", series, across="waiting pods", up="milliseconds per pod", log_x=True)


def _shapes(runs: Mapping[str, Sequence[Run]], shapes: Sequence[str]) -> str:
    groups: dict[str, dict[str, float]] = {}
    for name in shapes:
        counted = [run for run in runs.get(name, ()) if "events off" not in run.case]
        found = {f"{point.at:,.0f} nodes": point.median for point in points(counted, _rate)}
        if found:
            groups[name] = found
    return bars("scheduler_perf's shapes", groups, up="pods per second")


def all_plots(parts: Mapping[str, Part], shapes: Sequence[str]) -> dict[str, str]:
    """Return the plots with data by file name, in the order of the report."""
    runs = {name: part.runs for name, part in parts.items()}
    made = {
        "throughput-by-nodes": _nodes_rate(runs),
        "latency-by-rate": _latency("Create to bind by arrival rate", runs.get("rates", ()), "pods per second"),
        "cpu-by-nodes": _nodes_cpu(runs),
        "workers": _workers(runs),
        "memory-by-pods": _memory(runs),
        "latency-by-wave": _latency("Create to bind in a wave", runs.get("waves", ()), "pods in a wave"),
        "cpu-by-waiting": _waiting(runs),
        "shapes": _shapes(runs, shapes),
    }
    return {f"{name}.svg": text for name, text in made.items() if text}
