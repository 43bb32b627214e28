"""A scenario's runs as Markdown: medians with their ranges, and every refusal in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.tables import spread, table

from .model import Scenario
from .result import Figures, Run


class Column(NamedTuple):
    """`of` gives None where the figure was not measured; a column without any figure is left out."""

    title: str
    of: Callable[[Figures], float | None]


COLUMNS = (
    Column("pods", lambda f: float(f.pods)),
    Column("pods/s", lambda f: f.pods_per_second),
    Column("of bare binds", lambda f: f.of_bare),
    Column("p50 ms", lambda f: f.latency.p50),
    Column("p90 ms", lambda f: f.latency.p90),
    Column("p99 ms", lambda f: f.latency.p99),
    Column("max ms", lambda f: f.latency.most),
    Column("p99 ms from due", lambda f: f.from_due.p99),
    Column("scheduler's CPU ms a pod", lambda f: f.cpu_ms),
    Column("cluster's CPU ms a pod", lambda f: f.server_cpu_ms),
    Column("scheduler's MB", lambda f: f.rss_mb),
    Column("peak MB", lambda f: f.peak_mb),
    Column("conflicts", lambda f: f.conflicts),
    Column("revalidations", lambda f: f.revalidations),
    Column("urgent retries", lambda f: f.urgent),
    Column("longest stall ms", lambda f: f.stall_ms),
    Column("bare binds/s", lambda f: f.bare_per_second),
    Column("driver's CPU ms a pod", lambda f: f.driver_cpu_ms),
    Column("driver's lag ms", lambda f: f.driver_lag_ms),
)


def by_case(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each case, in the order of their first."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.case, []).append(run)
    return found


def figures_of(runs: Sequence[Run]) -> list[Figures]:
    """Of the runs that count."""
    return [run.figures for run in runs if run.figures is not None and not run.refused]


def text_of(scenario: Scenario, runs: Sequence[Run]) -> str:
    """The table and what was refused."""
    return markdown(runs, first="case" if not scenario.axis else scenario.axis)


def markdown(runs: Sequence[Run], *, first: str = "case") -> str:
    """A line a case. A case of which a run was refused has no figures: what it would say is not known."""
    cases = by_case(runs)
    good = {case: figures_of(each) for case, each in cases.items() if not any(run.refused for run in each)}
    columns = [
        column
        for column in COLUMNS
        if any(column.of(figures) is not None for each in good.values() for figures in each)
    ]
    rows: list[list[str]] = []
    for case, each in cases.items():
        figures = good.get(case)
        if figures is None:
            rows.append([case, str(len(each)), *["refused"] * len(columns)])
            continue
        cells = []
        for column in columns:
            values = [value for value in map(column.of, figures) if value is not None]
            cells.append(spread(values) if values else "")
        rows.append([case, str(len(each)), *cells])
    parts = [table((first, "runs", *(column.title for column in columns)), rows)]
    parts += [
        f"- **Refused**: {run.case}, run {run.number}: {reason}" for run in runs for reason in run.refused
    ]
    return "\n".join([parts[0], *(["", *parts[1:]] if parts[1:] else [])])
