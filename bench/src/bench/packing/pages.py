"""Results of runs, as a table for a terminal and as plots: means over seeds, with their deviations."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .demand import Filled
from .gangs import Fitted
from .lives import Lived
from .through_http import Scheduled

Outcome = Filled | Lived | Fitted | Scheduled
Column = tuple[str, Callable[[Any], float], str]

_PERCENT = "{:.2f}"
_COLUMNS: dict[type, tuple[Column, ...]] = {
    Filled: (
        ("GPUS ALLOCATED %", lambda run: 100 * run.allocated, _PERCENT),
        ("UNUSABLE %", lambda run: 100 * run.curve[-1][2], _PERCENT),
        ("PODS PLACED %", lambda run: 100 * run.placed / run.pods, _PERCENT),
        ("US PER DECISION", lambda run: run.decision_us, "{:.0f}"),
    ),
    Lived: (
        ("GPUS ALLOCATED %", lambda run: 100 * run.allocated, _PERCENT),
        ("UNUSABLE %", lambda run: 100 * run.unusable, _PERCENT),
        ("PODS THAT WAITED %", lambda run: 100 * run.waited, _PERCENT),
        ("MEAN WAIT S", lambda run: run.mean_wait, "{:.0f}"),
        ("UNPLACED", lambda run: run.unplaced, "{:.0f}"),
    ),
    Fitted: (
        ("GANGS", lambda run: run.gangs, "{:.1f}"),
        ("WITHOUT AGENTS", lambda run: run.without, "{:.1f}"),
        ("AGENTS", lambda run: run.agents, "{:.0f}"),
    ),
    Scheduled: (
        ("GPUS ALLOCATED %", lambda run: 100 * run.allocated, _PERCENT),
        ("PODS BOUND %", lambda run: 100 * run.bound / run.pods, _PERCENT),
        ("PODS/S", lambda run: run.pods_per_second, "{:.0f}"),
        ("CPU MS PER POD", lambda run: run.cpu_ms, "{:.3f}"),
        ("PLAIN PODS/S", lambda run: run.plain_per_second, "{:.0f}"),
        ("PLAIN CPU MS", lambda run: run.plain_cpu_ms, "{:.3f}"),
    ),
}


def table_of(runs: Sequence[Outcome]) -> str:
    """Return a line for each trace and policy, in the order of the runs; `+-` is the standard deviation over seeds."""
    if not runs:
        return "No runs."
    columns = _COLUMNS[type(runs[0])]
    rows = [["TRACE", "POLICY", "RUNS", *(name for name, _, _ in columns)]]
    for (trace, policy), each in _grouped(runs).items():
        counted = [run for run in each if not getattr(run, "refused", ())]
        cells = [_mean([of(run) for run in counted], form) for _, of, form in columns]
        rows.append([trace, policy, str(len(counted)), *cells])
    if all(not row[0] for row in rows[1:]):
        rows = [row[1:] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _grouped(runs: Iterable[Outcome]) -> dict[tuple[str, str], list[Outcome]]:
    found: dict[tuple[str, str], list[Outcome]] = {}
    for run in runs:
        found.setdefault((getattr(run, "trace", ""), run.policy), []).append(run)
    return found


def _mean(values: Sequence[float], form: str) -> str:
    if not values:
        return "-"
    mean = form.format(statistics.fmean(values))
    return mean if len(values) < 2 else f"{mean} +-{form.format(statistics.stdev(values))}"


def curves(runs: Sequence[Filled]) -> dict[str, str]:
    """Return file name -> SVG: allocated and unusable by the requested share, means over seeds, a pair for each trace.

    Raises ModuleNotFoundError without matplotlib.
    """
    from ..harness.plots import COLORS, standalone, svg

    found = {}
    for trace in dict.fromkeys(run.trace for run in runs):
        ours = [run for run in runs if run.trace == trace]
        name = trace.split()[-1].rsplit("_", 1)[-1].removesuffix(".csv")
        for place, what, title in ((1, "allocated", "GPUs allocated"), (2, "unusable", "Free but unusable")):

            def draw(axes: Any, place: int = place, title: str = title, ours: Sequence[Filled] = ours) -> None:
                axes.set_title(title)
                for number, policy in enumerate(dict.fromkeys(run.policy for run in ours)):
                    points = zip(*(run.curve for run in ours if run.policy == policy), strict=False)
                    means = [[statistics.fmean(each) for each in zip(*point, strict=True)] for point in points]
                    axes.plot(
                        [100 * point[0] for point in means],
                        [100 * point[place] for point in means],
                        color=COLORS[number % len(COLORS)],
                        linestyle="-" if number < len(COLORS) else "--",
                        label=policy,
                    )
                axes.set_xlabel("GPUs requested, % of all")
                axes.set_ylabel("% of all GPUs")
                if place == 1:
                    # Below that, all policies have capacity for all pods.
                    axes.set_xlim(75, None)
                    axes.set_ylim(70, 100)
                axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))

            found[f"packing-{name}-{what}.svg"] = standalone(svg(f"{title}, {trace}", draw))
    return found
