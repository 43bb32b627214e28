"""The filter that keeps pods within the scheduler's shard, and whom a change of the shard wakes."""

from __future__ import annotations

import numpy as np
import pytest

from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.events.events import NODE_ADD, NODE_SHARD_UPDATE
from agent_scheduler.engine.plugins.node_shard import REASON, NodeShard
from agent_scheduler.engine.shards.claims import Membership
from agent_scheduler.engine.state.ledger import Ledger
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.engine import World, node, wakes


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
    snapshot = Snapshot(ledger)
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
