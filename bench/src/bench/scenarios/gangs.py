"""Scenarios of gangs in queues: their rate, agents beside them, and a queue that reclaims its deserved share."""

from __future__ import annotations

from bench.harness.arrivals import Backlog, Even
from bench.harness.manifests import HIGH, LOW
from bench.harness.model import Batch, Case, Creating, Fate, Gang, Nodes, Scenario, Template, Tuning

NODES = Nodes(count=1_000)
MEMBER = Template(requests={"cpu": "1", "memory": "2Gi"})
#: More than any node has.
TOO_LARGE = Template(requests={"cpu": "1000", "memory": "2Gi"})
#: Volcano's defaults.
BATCH = Tuning(batch={})
_ENDLESS = 100_000

_RECLAIM = Tuning(
    batch={
        "actions": "enqueue, allocate, reclaim, backfill",
        "tiers": [
            {"plugins": [{"name": "priority"}, {"name": "gang"}, {"name": "conformance"}]},
            {"plugins": [{"name": "predicates"}, {"name": "capacity"}, {"name": "nodeorder"}]},
        ],
    }
)


def _gangs(count: int, size: int) -> Case:
    load = Batch(name="gang", count=count * size, templates=(MEMBER,), gang=Gang(size=size))
    return Case(name=f"{count:,} of {size}", nodes=NODES, load=load, tuning=BATCH, at=float(count))


def _backlog(count: int, size: int) -> Case:
    """Return a case in which all gangs wait when the scheduler starts."""
    load = Batch(name="gang", count=count * size, templates=(MEMBER,), gang=Gang(size=size), arrival=Backlog())
    return Case(name=f"{count:,} of {size}, waiting", nodes=NODES, load=load, tuning=BATCH, at=float(count))


def _without_gangs(count: int) -> Case:
    """Return a case with the same pods, without gangs, so that the fast path binds them."""
    load = Batch(name="agent", count=count, templates=(MEMBER,), arrival=Backlog())
    return Case(name=f"{count:,} pods without gangs, waiting", nodes=NODES, load=load)


def _beside(*, waiting: int, placed: float) -> Case:
    """Return a case of 200 agents per second, waiting gangs that fit nowhere, and gangs of two that are placed."""
    load = Batch(name="agent", count=6_000, arrival=Even(200.0))
    stuck = Batch(name="stuck", count=waiting * 10, templates=(TOO_LARGE,), gang=Gang(size=10), fate=Fate.WAITS)
    coming = Batch(
        name="coming",
        count=_ENDLESS,
        templates=(Template(requests={"cpu": "10m", "memory": "16Mi"}),),
        gang=Gang(size=2),
        fate=Fate.ANY,
    )
    return Case(
        name=f"{waiting:,} gangs wait, {placed:g} placed per second" if waiting else "no batch scheduler",
        nodes=NODES,
        before=(stuck,) if waiting else (),
        load=load,
        churn=(Creating(batch=coming, every=1 / (2 * placed)),) if placed else (),
        tuning=BATCH if waiting else Tuning(),
        at=float(waiting),
    )


def _reclaim(nodes: int) -> Case:
    """Return a case in which one queue uses the whole cluster, and gangs of one that deserves half of it arrive."""
    cores = 32 * nodes
    deserved = {"cpu": str(cores // 2), "memory": f"{cores}Gi"}
    return Case(
        name=f"{nodes:,} nodes",
        nodes=Nodes(count=nodes, memory="64Gi"),
        queues={name: {"deserved": deserved, "reclaimable": True} for name in ("first", "second")},
        before=(
            Batch(
                name="first",
                count=cores,
                templates=(Template(requests=MEMBER.requests, spec={"priorityClassName": LOW}),),
                gang=Gang(size=8, minimum=1, queue="first"),
                fate=Fate.PREEMPTED,
            ),
        ),
        load=Batch(
            name="second",
            count=cores // 4,
            templates=(Template(requests=MEMBER.requests, spec={"priorityClassName": HIGH}),),
            gang=Gang(size=8, queue="second"),
        ),
        tuning=_RECLAIM,
        runs_pods=True,
        at=float(nodes),
    )


GANGS = (
    Scenario(
        name="gangs",
        group="batch",
        measures="gangs in one queue, complete or not at all",
        cases=(_gangs(500, 10), _gangs(1_000, 10), _backlog(500, 10), _without_gangs(5_000), _backlog(1_000, 10)),
        axis="gangs",
    ),
    Scenario(
        name="gangs-beside-agents",
        group="batch",
        measures="latency of agents at 200 per second, with and without gangs beside them",
        cases=(_beside(waiting=0, placed=0.0), _beside(waiting=1_000, placed=100.0)),
        axis="waiting gangs",
    ),
    Scenario(
        name="reclaim",
        group="batch",
        measures="a queue reclaims its deserved share from another one",
        cases=(_reclaim(100), _reclaim(500)),
        axis="nodes",
    ),
)
