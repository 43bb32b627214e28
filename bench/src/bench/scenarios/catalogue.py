"""All scenarios by name, and their cases with the options applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.harness.model import Case, Scenario

from .agents import ARRIVALS, BURSTS
from .curves import CURVES, WORKERS
from .existing import fitted
from .gangs import GANGS
from .options import Options
from .replay import replay
from .shapes import SHAPES

SCENARIOS: tuple[Scenario, ...] = (*SHAPES, *BURSTS, *ARRIVALS, *CURVES, *WORKERS, *GANGS)
#: The scenario that needs an option with its traces.
TRACE = "trace"


def names() -> list[str]:
    return [scenario.name for scenario in SCENARIOS] + [TRACE]


def find(name: str, options: Options) -> Scenario:
    """Return the scenario.

    Raises KeyError for an unknown name, TraceError for a trace that cannot be read, ValueError without one.
    """
    if name == TRACE:
        if not options.traces:
            raise ValueError("the scenario `trace` needs --trace KIND:FILES")
        return replay(options.traces)
    return {scenario.name: scenario for scenario in SCENARIOS}[name]


def cases(scenario: Scenario, options: Options) -> list[Case]:
    """Return the cases to run: only the last one if the run is quick. Raises NotHereError."""
    chosen: Sequence[Case] = [case for case in scenario.cases if options.case in case.name]
    if options.patience is not None:
        chosen = [replace(case, patience=options.patience) for case in chosen]
    if options.quick:
        chosen = chosen[-1:]
    made = [case.scaled(options.factor) for case in chosen]
    if options.events is not None:
        made = [
            replace(
                case,
                name=f"{_without_events(case.name)}, events {'on' if events else 'off'}",
                tuning=replace(case.tuning, events=events),
            )
            for case in made
            for events in options.events
        ]
    if options.kubeconfig is not None:
        # Whether that scheduler writes events is not configured here.
        made = [fitted(replace(case, name=_without_events(case.name)), options) for case in made]
    # Cases that differed only in what the options override are one case now.
    return list({case.name: case for case in made}.values())


def _without_events(name: str) -> str:
    return name.replace(", events on", "").replace(", events off", "")
