"""One report of all parts: `README.md` with tables, and its plots, in a folder that also keeps the parts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.harness.model import Scenario

from .parts import Part
from .plots import all_plots
from .programs import BENCHMARKS
from .scenarios.catalogue import SCENARIOS, TRACE
from .scenarios.tables import text_of

GROUPS = {
    "scheduler_perf": "scheduler_perf's shapes",
    "agents": "Agents",
    "arrivals": "Arrivals",
    "scale": "Scale",
    "workers": "Workers",
    "batch": "Batch",
    "traces": "Traces",
}
_HOW = (
    "Medians of the runs with their ranges (least to most); runs of a scenario's cases alternate. Latency is from the "
    "create's response until the load generator's watch delivers the bind; `from due` is from the time when an open "
    "loop's pod was due. `of bare binds` is the share of the rate at which a minimal client binds pods on the "
    "same cluster in the same run, without a scheduler. CPU and memory are those of the processes; stalls of the "
    "scheduler's event loop are rounded up to a bucket of its metric. A run is refused, and its case has no figures, "
    "if a pod was lost or never bound, if a node was over its allocatable at any moment, or if a flush of the queue "
    "had to wake a pod. Each part has the CPU time of a million additions in Python just before it: machines and hours "
    "differ in speed, so compare figures of two reports in units of that."
)
_SMALL = "**All runs were smaller than intended: the figures only show whether it works.**"


def write_report(folder: Path, parts: Mapping[str, Part]) -> Path:
    """Write the page and its plots; return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    plots = all_plots(parts, [scenario.name for scenario in SCENARIOS if scenario.group == "scheduler_perf"])
    for name, text in plots.items():
        (folder / name).write_text(text)
    page = folder / "README.md"
    page.write_text(report(parts, plots=list(plots)))
    return page


def report(parts: Mapping[str, Part], *, plots: Sequence[str]) -> str:
    """Return the page. Its head has the machine of the last part; a part of another machine names its own."""
    facts = max(parts.values(), key=lambda part: part.date).machine if parts else {}
    texts = ["# Benchmarks", "\n".join(f"- {name}: {fact}" for name, fact in facts.items())]
    if any("(x " in run.case for part in parts.values() for run in part.runs):
        texts.append(_SMALL)
    if plots:
        texts.append("\n".join(f"![{name.removesuffix('.svg')}]({name})" for name in plots))
    scenarios = {scenario.name: scenario for scenario in SCENARIOS}
    scenarios[TRACE] = Scenario(name=TRACE, group="traces", measures="a recorded workload, replayed", cases=())
    if any(part.name in scenarios for part in parts.values()):
        texts.append(_HOW)
    for group, title in GROUPS.items():
        members = [each for each in scenarios.values() if each.group == group and each.name in parts]
        if members:
            texts.append(f"## {title}")
        for each in members:
            part = parts[each.name]
            texts += _section(part, each.measures, facts) + _runs(each, part)
    programs = [each for each in BENCHMARKS if each.name in parts]
    if programs:
        texts.append("## Single parts")
    for program in programs:
        part = parts[program.name]
        texts += _section(part, f"{program.measures}. Limits: {program.limits}", facts)
        texts.append(part.text if part.ok else _failed(part))
    return "\n\n".join(texts) + "\n"


def _section(part: Part, measures: str, facts: Mapping[str, str]) -> list[str]:
    when = f"{part.date}, commit {part.commit or 'unknown'}, load before {part.load:.2f}"
    if part.million_additions_ms:
        when += f", a million additions {part.million_additions_ms:.0f} ms"
    other = [f"{name}: {fact}" for name, fact in part.machine.items() if facts.get(name) != fact]
    return [
        f"### {part.name}",
        f"Measures {measures}.",
        f"`{shlex.join(part.command)}` ({part.seconds:.0f} s; {when})",
        *([f"On another machine: {'; '.join(other)}."] if other else []),
    ]


def _runs(scenario: Scenario, part: Part) -> list[str]:
    texts = [text_of(scenario, part.runs)] if part.runs else []
    if not part.ok and part.text:
        texts.append(_failed(part))
    elif not part.runs:
        texts.append("No run was made.")
    return texts


def _failed(part: Part) -> str:
    return f"**Failed** with exit code {part.code}:\n\n```text\n{part.text[-2000:]}\n```"
