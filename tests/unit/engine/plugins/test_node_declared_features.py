"""NodeDeclaredFeatures: who needs what, and which nodes will do."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.plugins.node_declared_features import NodeDeclaredFeatures
from agent_scheduler.engine.state.features import HOST_NETWORK_USERS, RESTART_ALL
from agent_scheduler.engine.state.nodeinfo import node_change_events, same_for_scheduling
from tests.support.engine import PACK, SPREAD, World, node, wakes

RESTARTING = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [3]}}]
RULED = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}]


def where(base: str, **spec: Any) -> list[str] | str:
    """The nodes that will do, or why none does."""
    world = World(
        node("none"),
        node("restarts", declared=[RESTART_ALL, "SomethingElse"]),
        node("users", declared=[HOST_NETWORK_USERS]),
        node("both", declared=[HOST_NETWORK_USERS, RESTART_ALL]),
        profile={"agent": PACK, "default-scheduler": SPREAD}[base],
    )
    decision = world.decide(world.pod(**spec))
    if isinstance(decision, Refusal):
        return decision.message
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


DECLARED = ClusterEvent(Resource.NODE, ActionType.UPDATE_NODE_DECLARED_FEATURE)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, [HOST_NETWORK_USERS, RESTART_ALL], True),
        (None, [RESTART_ALL], False),
        ([], [HOST_NETWORK_USERS], True),
        ([HOST_NETWORK_USERS], [HOST_NETWORK_USERS, RESTART_ALL], False),
        ([HOST_NETWORK_USERS], [], False),
    ],
)
def test_a_node_that_declares_what_a_pod_needs_wakes_it(
    before: list[str] | None, after: list[str], expected: bool
) -> None:
    pod = World().pod(hostNetwork=True, hostUsers=False)
    old, new = (None if each is None else node("n", declared=each) for each in (before, after))
    event = ev.NODE_ADD if old is None else DECLARED
    assert wakes(NodeDeclaredFeatures(), pod, event, old, new) is expected


def test_a_node_that_declares_something_else_is_another_to_decisions_and_tells_so() -> None:
    old, new = (node("n", declared=each) for each in ([RESTART_ALL, "Else"], [HOST_NETWORK_USERS]))
    same = node("n", declared=[RESTART_ALL, "Other"])
    assert not same_for_scheduling(new, old)
    assert DECLARED in node_change_events(new, old)
    assert same_for_scheduling(same, old)
    assert node_change_events(same, old) == []
