"""Numbers of taints and label values are kept for nodes that are there, and not for all that ever were."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.recount import contradictions
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.engine import SPREAD, World, node
from tests.support.terms import HOSTNAME, spread

NODES = 40

PODS: list[dict[str, Any]] = [
    {},
    {"tolerations": [{"key": "scale-down", "operator": "Exists"}]},
    {"nodeSelector": {"zone": "z1"}},
    *({"topologySpreadConstraints": [spread(key, nodeTaintsPolicy="Honor")]} for key in ("zone", HOSTNAME)),
]


def scaled(name: str, number: int, *, tainted: bool) -> NodeInfo:
    """As an autoscaler leaves them: its taints bear the time, and labels name the machine."""
    taints = [{"key": "scale-down", "value": f"{1_700_000_000 + number}", "effect": "NoSchedule"}]
    return node(name, labels={"zone": f"z{number % 3}", "machine": f"m-{number}"}, taints=taints if tainted else [])


def answer(world: World, pod: PodInfo) -> object:
    """What is decided about a pod, by names."""
    return sorted(world.feasible(pod)) or world.message(pod)


@pytest.mark.parametrize("goes", [False, pytest.param(True, marks=pytest.mark.wide)], ids=["taints change", "nodes go"])
def test_fifty_thousand_taints_on_nodes_long_gone_leave_small_tables_and_the_same_decisions(goes: bool) -> None:
    world = World(profile=SPREAD)
    names = [f"n{number}" for number in range(NODES)]
    pods = [world.pod(**spec) for spec in PODS]
    interns = world.ledger.columns.interns
    largest = 0
    for number in range(50_000):
        name = names[number % NODES]
        if goes:
            world.ledger.remove_node(name)
        world.ledger.set_node(scaled(name, number, tainted=number % 4 > 0))
        largest = max(largest, len(interns.taints), len(interns.values))
        if number % 5_000 == 4_999:
            there = [known for each in names if (known := world.ledger.node(each)) is not None]
            fresh = World(*there, profile=SPREAD)
            assert [answer(world, pod) for pod in pods] == [answer(fresh, pod) for pod in pods]
    # Of the labels those are numbered that somebody has asked for: hosts and zones.
    assert 20 < largest < 1_000
    assert contradictions(world.ledger) == []


def test_what_is_numbered_is_there_when_it_is_asked_for() -> None:
    """A class that has asked for no label yet, and one that has, just when the numbers are given anew."""
    nodes = (scaled(f"n{number}", number, tainted=False) for number in range(4))
    world = World(*nodes, profile=SPREAD)
    z1 = world.pod(nodeSelector={"zone": "z1"})
    assert answer(world, z1) == ["n1"]
    interns, before = world.ledger.columns.interns, world.ledger.columns.interns.generation
    number = 4
    while interns.generation == before:
        world.ledger.set_node(scaled("n0", number := number + 1, tainted=True))
    tolerant = world.pod(tolerations=[{"operator": "Exists"}], nodeSelector={"machine": f"m-{number}"})
    assert answer(world, z1) == ["n1"]
    assert answer(world, tolerant) == ["n0"]
