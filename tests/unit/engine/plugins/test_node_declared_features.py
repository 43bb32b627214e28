"""NodeDeclaredFeatures: who needs what, and which nodes will do."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.decide.classview import ClassView
from agent_scheduler.engine.decide.decide import CandidateNodes, decide
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.engine.state.features import HOST_NETWORK_USERS, RESTART_ALL
from tests.support.engine import World, node

RESTARTING = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [3]}}]
RULED = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}]


def where(base: str, **spec: Any) -> list[str] | str:
    """The nodes that will do, or why none does."""
    world = World(
        node("none"),
        node("restarts", declared=[RESTART_ALL, "SomethingElse"]),
        node("users", declared=[HOST_NETWORK_USERS]),
        node("both", declared=[HOST_NETWORK_USERS, RESTART_ALL]),
    )
    snapshot = Snapshot(world.ledger)
    profile = build_profile(ProfileSpec(scheduler_name="agent-scheduler", base=base))
    view = ClassView(profile, world.pod(**spec).cls, snapshot)
    view.refresh(snapshot)
    decision = decide(view, snapshot.columns, candidates=4)
    if isinstance(decision, Refusal):
        return decision.message
    assert isinstance(decision, CandidateNodes)
    return sorted(candidate.node_name for candidate in decision.candidates)


@pytest.mark.parametrize("base", ["agent", "default-scheduler"])
@pytest.mark.parametrize(
    ("spec", "nodes"),
    [
        ({}, ["both", "none", "restarts", "users"]),
        ({"hostNetwork": True}, ["both", "none", "restarts", "users"]),
        ({"hostUsers": False}, ["both", "none", "restarts", "users"]),
        ({"hostNetwork": True, "hostUsers": True}, ["both", "none", "restarts", "users"]),
        ({"hostNetwork": True, "hostUsers": False}, ["both", "users"]),
        ({"containers": [{"name": "c", "restartPolicyRules": RESTARTING}]}, ["both", "restarts"]),
        (
            {"containers": [{"name": "c", "restartPolicyRules": RULED}]},
            ["both", "none", "restarts", "users"],
        ),
        ({"initContainers": [{"name": "i", "restartPolicyRules": RULED + RESTARTING}]}, ["both", "restarts"]),
        (
            {"hostNetwork": True, "hostUsers": False, "containers": [{"restartPolicyRules": RESTARTING}]},
            ["both"],
        ),
    ],
)
def test_a_pod_goes_where_all_that_it_needs_is_declared(
    base: str, spec: dict[str, Any], nodes: list[str]
) -> None:
    assert where(base, **spec) == nodes


def test_where_nobody_declares_it_the_reason_is_kube_schedulers() -> None:
    spec = {"hostNetwork": True, "hostUsers": False, "nodeSelector": {"kubernetes.io/hostname": "none"}}
    assert where("default-scheduler", **spec) == (
        "0/4 nodes are available: 1 node(s) didn't match Pod's required features, "
        "3 node(s) didn't match Pod's node affinity/selector."
    )


def test_pods_that_need_different_things_are_of_different_classes() -> None:
    world = World()
    plain = world.pod().cls
    assert world.pod(hostNetwork=True).cls is plain
    assert world.pod(hostNetwork=True, hostUsers=False).cls is not plain
    restarting = world.pod(containers=[{"name": "c", "restartPolicyRules": RESTARTING}]).cls
    assert restarting is not plain
    assert world.pod(containers=[{"name": "c", "restartPolicyRules": RULED}]).cls is not restarting
