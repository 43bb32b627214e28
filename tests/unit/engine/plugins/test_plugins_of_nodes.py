"""What nodes are asked for: taints, cordons and names, declared features, and the scheduler's shard."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.events import NODE_ADD, NODE_SHARD_UPDATE, ActionType, ClusterEvent, Resource
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.plugins.node_declared_features import NodeDeclaredFeatures
from agent_scheduler.engine.plugins.node_name import NodeName
from agent_scheduler.engine.plugins.node_shard import REASON, NodeShard
from agent_scheduler.engine.plugins.node_unschedulable import NodeUnschedulable
from agent_scheduler.engine.plugins.taint_toleration import TaintToleration
from agent_scheduler.engine.rules.tolerance import tolerates
from agent_scheduler.engine.shards.claims import Membership
from agent_scheduler.engine.state.features import HOST_NETWORK_USERS, RESTART_ALL
from agent_scheduler.engine.state.nodeinfo import node_change_events, same_for_scheduling
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.objects.wire import Taint, Toleration
from tests.support.engine import PACK, SPREAD, World, node, wakes
from tests.support.handles import handle_of

TAINT = {"key": "k", "effect": "NoSchedule"}
OTHER = {"key": "other", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, [], True),
        (None, [TAINT], False),
        ([TAINT], [], True),
        ([TAINT, OTHER], [TAINT], False),
        ([], [{"key": "soft", "effect": "PreferNoSchedule"}], False),
    ],
)
def test_a_node_wakes_whom_taints_refused_when_all_that_are_left_are_tolerated(
    before: Any, after: Any, expected: bool
) -> None:
    old, new = (None if taints is None else node("n", taints=taints) for taints in (before, after))
    event = ev.NODE_ADD if old is None else ev.NODE_UPDATE_TAINT
    assert wakes(TaintToleration(), World().pod(), event, old, new) is expected
    tolerant = World().pod(tolerations=[{"key": "k", "operator": "Exists"}])
    tolerates = before in (None, [TAINT, OTHER])
    assert wakes(TaintToleration(), tolerant, event, old, new) is tolerates


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(None, False, True), (None, True, False), (True, False, True), (False, False, False)],
)
def test_a_node_wakes_whom_a_cordon_refused_when_it_comes_open_or_is_opened(
    before: bool | None, after: bool, expected: bool
) -> None:
    old, new = (None if cordoned is None else node("n", unschedulable=cordoned) for cordoned in (before, after))
    event = ev.NODE_ADD if old is None else ev.NODE_UPDATE_TAINT
    assert wakes(NodeUnschedulable(), World().pod(), event, old, new) is expected


def test_a_new_node_wakes_whom_node_name_refused_whatever_the_name_where_none_is_kept() -> None:
    assert wakes(NodeName(), World().pod(), ev.NODE_ADD, None, node("n"))


def taint_of(value: str = "5", effect: str = "NoSchedule", key: str = "k") -> Taint:
    return Taint(key=key, value=value, effect=effect)


@pytest.mark.parametrize(
    ("toleration", "value", "expected"),
    [
        ({"operator": "Exists"}, "5", True),
        ({"key": "k", "operator": "Exists"}, "5", True),
        ({"key": "other", "operator": "Exists"}, "5", False),
        ({"key": "k", "value": "5"}, "5", True),
        ({"key": "k", "value": "6"}, "5", False),
        ({"key": "k"}, "", True),
        ({"key": "k", "value": "5", "effect": "NoSchedule"}, "5", True),
        ({"key": "k", "value": "5", "effect": "NoExecute"}, "5", False),
        ({"key": "k", "operator": "Lt", "value": "6"}, "5", True),
        ({"key": "k", "operator": "Lt", "value": "5"}, "5", False),
        ({"key": "k", "operator": "Gt", "value": "4"}, "5", True),
        ({"key": "k", "operator": "Gt", "value": "5"}, "5", False),
        ({"key": "k", "operator": "Gt", "value": "x"}, "5", False),
        ({"key": "k", "operator": "Lt", "value": "6"}, "x", False),
    ],
)
def test_a_taint_is_tolerated_where_key_effect_and_value_agree(
    toleration: dict[str, str], value: str, expected: bool
) -> None:
    assert tolerates(Toleration(**toleration), taint_of(value)) is expected


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
        ({"containers": [{"name": "c", "restartPolicyRules": RULED}]}, ["both", "none", "restarts", "users"]),
        ({"initContainers": [{"name": "i", "restartPolicyRules": RULED + RESTARTING}]}, ["both", "restarts"]),
        ({"hostNetwork": True, "hostUsers": False, "containers": [{"restartPolicyRules": RESTARTING}]}, ["both"]),
    ],
)
def test_a_pod_goes_where_all_that_it_needs_is_declared(base: str, spec: dict[str, Any], nodes: list[str]) -> None:
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


def asking(**requests: str) -> PodInfo:
    return World().pod(requests=requests)


def shard(*nodes: str) -> tuple[NodeShard, Membership]:
    membership = Membership()
    membership.set(frozenset(nodes))
    return NodeShard(membership), membership


@pytest.mark.promise("S20")
def test_nodes_of_the_shard_pass_and_no_other() -> None:
    plugin, _ = shard("n1", "n3", "not-there")
    ledger = Ledger()
    for name in ("n0", "n1", "n2", "n3"):
        ledger.set_node(node(name))
    ledger.remove_node("n3")
    rows = np.arange(4, dtype=np.intp)
    assert plugin.feasible(plugin, ledger.columns, rows).tolist() == [False, True, False, False]
    assert plugin.feasible_row(plugin, ledger.columns, 1)
    assert plugin.reasons(plugin, ledger.columns, rows[2:]) == {REASON: 2}
    assert not plugin.curable(plugin, ledger.columns, rows).any(), "nobody is evicted outside the shard"


def test_a_node_that_joins_or_leaves_is_seen_as_one_that_has_changed() -> None:
    plugin, membership = shard("n0")
    ledger = Ledger()
    for name in ("n0", "n1"):
        ledger.set_node(node(name))
    snapshot = Snapshot(ledger, handle_of(ledger))
    before, respecified = list(ledger.columns.version), snapshot.respecified.end
    joined, left, other = membership.set(frozenset({"n1"}))
    assert (joined, left) == ({"n1"}, {"n0"}) and not other
    ledger.touch([*joined, *left, "unknown"], spec=True)
    snapshot.refresh()
    assert all(now > then for now, then in zip(ledger.columns.version[:2], before[:2], strict=True))
    assert snapshot.respecified.since(respecified) is not None
    assert plugin.feasible(plugin, snapshot.columns, np.arange(2)).tolist() == [False, True]


def test_nodes_that_join_wake_the_pods_that_they_are_large_enough_for() -> None:
    plugin, _ = shard("n0")
    small, large, gpu = (asking(cpu="1"), asking(cpu="8"), asking(**{"example.com/gpu": "1"}))
    joined = [node("n1", cpu="4"), node("n2", cpu="2")]
    assert wakes(plugin, small, NODE_SHARD_UPDATE, None, joined)
    assert not wakes(plugin, large, NODE_SHARD_UPDATE, None, joined)
    assert wakes(plugin, large, NODE_SHARD_UPDATE, None, [*joined, node("n3", cpu="8")])
    # Extended resources are left to others, and many nodes wake all.
    assert wakes(plugin, gpu, NODE_SHARD_UPDATE, None, [node("n1")])
    assert wakes(plugin, large, NODE_SHARD_UPDATE, None, [node(f"n{number}") for number in range(17)])


def test_another_state_of_affairs_wakes_all_and_a_new_node_only_if_it_is_of_the_shard() -> None:
    plugin, _ = shard("n0")
    pod = asking(cpu="64")
    assert wakes(plugin, pod, NODE_SHARD_UPDATE, None, None)
    assert wakes(plugin, pod, NODE_ADD, None, node("n0"))
    assert not wakes(plugin, pod, NODE_ADD, None, node("n1"))
