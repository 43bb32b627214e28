"""Scenarios of agents: bursts of short-lived pods, arrivals that nothing slows down, a steady churn.

All have open-loop arrivals, because agents experience latency.
"""

from __future__ import annotations

from bench.harness.arrivals import Even, Lives, Poisson, Waves
from bench.harness.model import Batch, Case, Fate, Nodes, Scenario, Template

NODES = Nodes(count=1_000)
#: More than any node has; without a higher priority, so that it preempts nothing.
TOO_LARGE = Template(requests={"cpu": "1000", "memory": "128Mi"})
#: A tool call, a sandbox, a browser and a planner, as often as agents start them.
AGENTS = (
    *(Template(requests={"cpu": "100m", "memory": "128Mi"}, labels={"role": "tool"}),) * 12,
    *(Template(requests={"cpu": "500m", "memory": "512Mi"}, labels={"role": "sandbox"}),) * 5,
    *(Template(requests={"cpu": "1", "memory": "1536Mi"}, labels={"role": "browser"}),) * 2,
    Template(requests={"cpu": "250m", "memory": "1Gi"}, labels={"role": "planner"}),
)
_SHORT = Lives(1.0, 60.0)


def _waves(size: int) -> Case:
    """Return a case of three waves; the next one begins while the pods of the last one end."""
    waves = Waves(size, gap=max(5.0, size / 500))
    load = Batch(name="agent", count=3 * size, templates=AGENTS, arrival=waves, lives=_SHORT)
    return Case(name=f"3 waves of {size:,}", nodes=NODES, load=load, at=float(size))


def _churn(rate: float, seconds: float) -> Case:
    """Return a case in which as many pods end as arrive, after the first minute."""
    load = Batch(
        name="agent", count=int(rate * seconds), templates=AGENTS, arrival=Poisson(rate), lives=Lives(1.0, 60.0)
    )
    return Case(name=f"{rate:g}/s for {seconds:g} s", nodes=NODES, load=load, at=rate)


def _rate(rate: float, seconds: float) -> Case:
    load = Batch(name="arriving", count=int(rate * seconds), arrival=Even(rate))
    return Case(name=f"{rate:,.0f}/s", nodes=NODES, load=load, at=rate)


def _steady(waiting: int) -> Case:
    load = Batch(name="arriving", count=6_000, arrival=Even(200.0))
    refused = Batch(name="too-large", count=waiting, templates=(TOO_LARGE,), fate=Fate.WAITS)
    return Case(
        name=f"{waiting:,} waiting" if waiting else "none waiting",
        nodes=NODES,
        before=(refused,) if waiting else (),
        load=load,
        at=float(waiting),
    )


BURSTS = (
    Scenario(
        name="waves",
        group="agents",
        measures="bursts of agents that live for 1 to 60 s, all of a wave at one moment",
        cases=tuple(map(_waves, (100, 1_000, 10_000))),
        axis="pods in a wave",
    ),
    Scenario(
        name="churn",
        group="agents",
        measures="agents that arrive randomly and live for 1 to 60 s, in a steady state",
        cases=(_churn(45.0, 120.0), _churn(200.0, 120.0)),
        axis="pods per second",
    ),
)
ARRIVALS = (
    Scenario(
        name="rates",
        group="arrivals",
        measures="latency of pods that arrive evenly, at rates up to 2,000 per second",
        cases=tuple(_rate(rate, 20.0) for rate in (100.0, 200.0, 500.0, 1_000.0, 1_500.0, 2_000.0)),
        axis="pods per second",
    ),
    Scenario(
        name="steady",
        group="arrivals",
        measures="latency at 200 pods per second while others wait that fit nowhere",
        cases=tuple(map(_steady, (0, 20_000))),
        axis="waiting pods",
    ),
)
