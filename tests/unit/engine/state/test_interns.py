"""Numbers of taints and label values are kept for nodes that are there, and not for all that ever were."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.decide.classview import ClassView
from agent_scheduler.engine.decide.decide import CandidateNodes, ClassViews, decide
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.recount import contradictions
from tests.support.engine import World, node
from tests.support.terms import HOSTNAME, spread

PROFILE = build_profile(ProfileSpec(scheduler_name="agent-scheduler", base="default-scheduler"))
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
    return node(
        name,
        labels={"zone": f"z{number % 3}", "machine": f"m-{number}"},
        taints=taints if tainted else [],
    )


def answer(views: ClassViews, snapshot: Snapshot, pod: PodInfo) -> object:
    """What is decided about a pod, by names."""
    snapshot.refresh()
    view: ClassView = views.of(pod.cls)
    decision = decide(view, snapshot.columns, candidates=NODES)
    if not isinstance(decision, CandidateNodes):
        return decision.message
    return sorted(candidate.node_name for candidate in decision.candidates)


@pytest.mark.parametrize(
    "goes", [False, pytest.param(True, marks=pytest.mark.wide)], ids=["taints change", "nodes go"]
)
def test_fifty_thousand_taints_on_nodes_long_gone_leave_small_tables_and_the_same_decisions(
    goes: bool,
) -> None:
    world = World()
    names = [f"n{number}" for number in range(NODES)]
    snapshot = Snapshot(world.ledger)
    views = ClassViews(PROFILE, snapshot)
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
            fresh = World()
            for known in names:
                if (there := world.ledger.node(known)) is not None:
                    fresh.ledger.set_node(there)
            first = Snapshot(fresh.ledger)
            anew = ClassViews(PROFILE, first)
            assert [answer(views, snapshot, pod) for pod in pods] == [
                answer(anew, first, pod) for pod in pods
            ]
    # Of the labels those are numbered that somebody has asked for: hosts and zones.
    assert 20 < largest < 1_000
    assert contradictions(world.ledger) == []


def test_what_is_numbered_is_there_when_it_is_asked_for() -> None:
    """A class that has asked for no label yet, and one that has, just when the numbers are given anew."""
    world = World(*(scaled(f"n{number}", number, tainted=False) for number in range(4)))
    snapshot = Snapshot(world.ledger)
    views = ClassViews(PROFILE, snapshot)
    z1 = world.pod(nodeSelector={"zone": "z1"})
    assert answer(views, snapshot, z1) == ["n1"]
    interns, before = world.ledger.columns.interns, world.ledger.columns.interns.generation
    number = 4
    while interns.generation == before:
        world.ledger.set_node(scaled("n0", number := number + 1, tainted=True))
    tolerant = world.pod(tolerations=[{"operator": "Exists"}], nodeSelector={"machine": f"m-{number}"})
    assert answer(views, snapshot, z1) == ["n1"]
    assert answer(views, snapshot, tolerant) == ["n0"]
