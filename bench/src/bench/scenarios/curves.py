"""Scenarios of growing cost: with nodes, pods, waiting pods, classes of pods and workers."""

from __future__ import annotations

from bench.harness.arrivals import Backlog
from bench.harness.manifests import CLAIM_TEMPLATE
from bench.harness.model import AS_ANSWERED, Batch, Case, Fate, Nodes, Policy, Scenario, Strategy, Template, Tuning

from .agents import TOO_LARGE

_GATE = "SchedulerPreQueueingHints"
#: The first curve's pods, which fit everywhere: 100 nodes hold 11,000.
_PODS = 10_000


def _backlog(count: int) -> Case:
    load = Batch(name="waiting", count=5_000, arrival=Backlog())
    return Case(name=f"{count:,} nodes", nodes=Nodes(count=count), load=load, at=float(count))


def _nodes(count: int) -> Case:
    load = Batch(name="measured", count=_PODS)
    return Case(name=f"{count:,} nodes", nodes=Nodes(count=count), load=load, at=float(count))


def _pods(count: int, nodes: int) -> Case:
    load = Batch(name="measured", count=count)
    return Case(
        name=f"{count:,} pods on {nodes:,} nodes",
        nodes=Nodes(count=nodes),
        load=load,
        at=float(count),
        series=f"{nodes:,} nodes",
        most_runs=3 if count < 100_000 else 1,
        patience=1800.0,
    )


def _waiting(count: int) -> Case:
    refused = Batch(name="too-large", count=count, templates=(TOO_LARGE,), fate=Fate.WAITS)
    return Case(
        name=f"{count:,} waiting" if count else "none waiting",
        nodes=Nodes(count=1_000),
        before=(refused,) if count else (),
        load=Batch(name="measured", count=5_000),
        at=float(count),
        most_runs=5 if count < 100_000 else 3,
        patience=1200.0,
    )


def _classes(count: int) -> Case:
    templates = tuple(Template(requests={"cpu": "100m", "memory": f"{128 + number}Mi"}) for number in range(count))
    return Case(
        name=f"{count:,} classes" if count > 1 else "one class",
        nodes=Nodes(count=1_000),
        load=Batch(name="measured", count=5_000, templates=templates),
        at=float(count),
    )


def _workers(count: int, strategy: Strategy, *, tight: bool) -> Case:
    """Return a case of workers. `tight`: 5,000 pods exactly fill the nodes, so that the last find little capacity."""
    nodes = Nodes(count=500, cpu="1" if tight else "32")
    how = "pack" if strategy == "MostAllocated" else "spread"
    series = f"{how}, {'tight' if tight else 'roomy'}"
    return Case(
        name=f"{series}, {count} worker{'s' if count > 1 else ''}",
        nodes=nodes,
        load=Batch(name="measured", count=5_000),
        tuning=Tuning(workers=count, strategy=strategy),
        at=float(count),
        series=series,
    )


def _raced(policy: Policy, workers: int) -> Case:
    """Return a case of 2,000 pods that exactly fill ten nodes."""
    return Case(
        name=f"{policy}, {workers} workers",
        nodes=Nodes(count=10, cpu="20", pods=250),
        load=Batch(name="measured", count=2_000),
        tuning=Tuning(workers=workers, policy=policy),
    )


def _plain(workers: int) -> Case:
    return Case(
        name=f"{workers} worker{'s' if workers > 1 else ''}",
        nodes=Nodes(count=1_000),
        load=Batch(name="measured", count=_PODS),
        tuning=Tuning(workers=workers),
    )


def _claims(*, burst: bool, hints: bool) -> Case:
    """Return a case with a claim per pod, from a template; `burst`: all pods exist and wait before the template."""
    spec = {"resourceClaims": [{"name": "device", "resourceClaimTemplateName": CLAIM_TEMPLATE}]}
    return Case(
        name=f"{'burst' if burst else 'stream'}, {_GATE} {'on' if hints else 'off'}",
        nodes=Nodes(count=500, devices=10),
        load=Batch(
            name="measured", count=5_000, templates=(Template(spec=spec),), arrival=Backlog() if burst else AS_ANSWERED
        ),
        template_last=burst,
        tuning=Tuning(gates={_GATE: hints}),
    )


CURVES = (
    Scenario(
        name="backlog",
        group="scale",
        measures="pods that exist before the scheduler starts, from the first bind to the last; CPU includes the start",
        cases=tuple(map(_backlog, (1_000, 5_000))),
        axis="nodes",
    ),
    Scenario(
        name="nodes",
        group="scale",
        measures="10,000 plain pods on growing numbers of nodes",
        cases=tuple(map(_nodes, (100, 1_000, 5_000, 20_000, 50_000, 100_000))),
        axis="nodes",
    ),
    Scenario(
        name="pods",
        group="scale",
        measures="growing numbers of plain pods, and the memory that they use",
        cases=(*(_pods(count, 5_000) for count in (1_000, 10_000, 50_000, 100_000, 200_000)), _pods(200_000, 100_000)),
        axis="pods",
    ),
    Scenario(
        name="waiting",
        group="scale",
        measures="5,000 plain pods while others wait that fit nowhere",
        cases=tuple(map(_waiting, (0, 1_000, 10_000, 100_000))),
        axis="waiting pods",
    ),
    Scenario(
        name="claims",
        group="scale",
        measures=f"5,000 pods with a claim each, {_GATE} on and off; limits: on >= 711 pods/s, >= 2.4 times off",
        cases=tuple(_claims(burst=burst, hints=hints) for burst in (True, False) for hints in (True, False)),
    ),
    Scenario(
        name="classes",
        group="scale",
        measures="5,000 pods of up to 5,000 classes",
        cases=tuple(map(_classes, (1, 10, 151, 5_000))),
        axis="classes",
    ),
)
WORKERS = (
    Scenario(
        name="workers",
        group="workers",
        measures="5,000 pods and 1 to 16 workers, which pack or spread on nodes with much capacity and just enough",
        cases=tuple(
            _workers(count, strategy, tight=tight)
            for strategy in ("MostAllocated", "LeastAllocated")
            for tight in (False, True)
            for count in (1, 2, 4, 8, 16)
        ),
        axis="workers",
    ),
    Scenario(
        name="scheduling",
        group="workers",
        measures="10,000 plain pods on 1,000 nodes; limit: the scheduler's CPU <= 0.5 ms per pod",
        cases=(_plain(1), _plain(8)),
    ),
    Scenario(
        name="tight",
        group="workers",
        measures="2,000 pods that exactly fill 10 nodes, where 8 workers compete for the last capacity",
        cases=(_raced("revalidate", 8), _raced("strict", 8)),
    ),
)
