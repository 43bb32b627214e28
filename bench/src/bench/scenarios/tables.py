"""A scenario's runs as Markdown: medians with their ranges, and every refusal in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.harness.model import Scenario
from bench.harness.result import Figures, Run
from bench.tables import spread, table


class Column(NamedTuple):
    """A column. `of` returns None if the figure was not measured; a column without any figure is left out."""

    title: str
    of: Callable[[Figures], float | None]


MAIN = (
    Column("pods", lambda f: float(f.pods)),
    Column("pods/s", lambda f: f.pods_per_second),
    Column("of bare binds", lambda f: f.of_bare),
    Column("p50 ms", lambda f: f.latency.p50),
    Column("p90 ms", lambda f: f.latency.p90),
    Column("p99 ms", lambda f: f.latency.p99),
    Column("max ms", lambda f: f.latency.most),
    Column("p99 ms from due", lambda f: f.from_due.p99),
    Column("scheduler's CPU ms per pod", lambda f: f.cpu_ms),
    Column("cluster's CPU ms per pod", lambda f: f.server_cpu_ms),
    Column("peak MB", lambda f: f.peak_mb),
    Column("longest stall ms", lambda f: f.stall_ms),
)
#: Effects of workers on one another.
CONFLICTS = (
    Column("conflicts", lambda f: f.conflicts),
    Column("revalidations", lambda f: f.revalidations),
    Column("urgent retries", lambda f: f.urgent),
)
MORE = (
    Column("attempts per pod", lambda f: f.attempts),
    Column("bare binds/s", lambda f: f.bare_per_second),
    Column("MB at the end", lambda f: f.rss_mb),
    Column("hint calls per pod", lambda f: f.hints),
    Column("rescued by a flush", lambda f: f.flushed),
    Column("driver's CPU ms per pod", lambda f: f.driver_cpu_ms),
    Column("driver's lag ms", lambda f: f.driver_lag_ms),
    Column("sent late ms", lambda f: f.sent_late_ms),
    Column("set-up s", lambda f: f.setup_seconds),
    Column("measured s", lambda f: f.measured_seconds),
)


def by_case(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return the runs of each case, in the order of their first."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.case, []).append(run)
    return found


def figures_of(runs: Sequence[Run]) -> list[Figures]:
    """Return the figures of the runs that count."""
    return [run.figures for run in runs if run.figures is not None and not run.refused]


def text_of(scenario: Scenario, runs: Sequence[Run]) -> str:
    """Return the main figures, the others in a collapsed section, and the refusals."""
    raced = scenario.group == "workers"
    main = (*MAIN, *CONFLICTS) if raced else MAIN
    more = MORE if raced else (*CONFLICTS, *MORE)
    parts = [markdown(runs, main)]
    if any(figures_of(runs)):
        parts.append(f"<details><summary>More figures</summary>\n\n{markdown(runs, more)}\n\n</details>")
    refusals = [f"- **Refused**: {run.case}, run {run.number}: {reason}" for run in runs for reason in run.refused]
    return "\n\n".join([*parts, *(["\n".join(refusals)] if refusals else [])])


def markdown(runs: Sequence[Run], columns: Sequence[Column]) -> str:
    """Return a line per case. A case with a refused run has no figures, because they would be unreliable."""
    cases = by_case(runs)
    good = {case: figures_of(each) for case, each in cases.items() if not any(run.refused for run in each)}
    shown = [
        column
        for column in columns
        if any(column.of(figures) is not None for each in good.values() for figures in each)
    ]
    rows: list[list[str]] = []
    for case, each in cases.items():
        cells = ["refused"] * len(shown)
        if case in good:
            cells = [_cell([column.of(figures) for figures in good[case]]) for column in shown]
        rows.append([case, str(len(each)), *cells])
    return table(("case", "runs", *(column.title for column in shown)), rows)


def _cell(values: Sequence[float | None]) -> str:
    """Return one figure alone if all runs agree on it."""
    known = [value for value in values if value is not None]
    return spread(known[:1] if len(set(known)) == 1 else known) if known else ""
