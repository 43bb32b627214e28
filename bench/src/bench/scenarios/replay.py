"""The replay of a recorded workload: `--trace`, in any of the forms that the demo reads."""

from __future__ import annotations

from collections.abc import Sequence

from bench.harness.arrivals import Given, GivenLives
from bench.harness.manifests import template_of
from bench.harness.model import Batch, Case, Fate, Nodes, Scenario
from bench.harness.specs import compressed
from bench.harness.traces import read_trace

#: For a trace without nodes.
_NODES = Nodes(count=1_000)


def replay(traces: Sequence[str]) -> Scenario:
    """Return a case for each trace. Raises TraceError, and ValueError for an invalid speedup."""
    return Scenario(
        name="trace",
        group="traces",
        measures="recorded workloads, replayed",
        cases=tuple(_case(*_with_speedup(text)) for text in traces),
    )


def _with_speedup(text: str) -> tuple[str, float]:
    what, at, speedup = text.rpartition("@")
    try:
        return (what, float(speedup)) if at else (text, 1.0)
    except ValueError:
        raise ValueError(f"--trace {text!r}: expected a number after @, found {speedup!r}") from None


def _case(text: str, speedup: float) -> Case:
    workload = read_trace(text)
    pods = compressed(workload.pods, speedup)
    load = Batch(
        name="replayed",
        count=len(pods),
        templates=tuple(map(template_of, pods)),
        arrival=Given(tuple(pod.arrival for pod in pods)),
        lives=GivenLives(tuple(pod.life for pod in pods)),
        fate=Fate.ANY,
    )
    nodes = Nodes(count=len(workload.nodes), given=workload.nodes) if workload.nodes else _NODES
    return Case(
        name=f"{workload.name}, {speedup:,.12g} times as fast",
        nodes=nodes,
        load=load,
        patience=pods[-1].arrival + 600.0,
    )
