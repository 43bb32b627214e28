"""Volcano agent scheduler: a node that was deleted and came back under its name could not be used until a restart.

What happened: the binder remembers for each node the generation of its last bind, and accepts only newer
ones. A result under way when the node was deleted wrote its large old generation for the new node, whose own
count began at zero and rises with binds alone: no bind could ever be newer. Deleted nodes also stayed in the
list that snapshots are made from.

Conditions: a busy node is replaced under its name while results and binds to it are under way; the rule on
versions (`strict`) applies.

Ours: versions only rise, also over a node's end, so whatever is under way is outdated and the new node can be
used at once.
"""

from __future__ import annotations

import pytest

from agent_scheduler.engine.decide.decide import ConflictPolicy
from tests.support.embedded import PODS, embedded_cluster, until
from tests.support.running import scheduling

from .stages import HeldBinds, millicores


@pytest.mark.parametrize("policy", list(ConflictPolicy))
async def test_a_node_that_came_back_is_used_at_once(policy: ConflictPolicy) -> None:
    async with (
        embedded_cluster() as cluster,
        scheduling(cluster.transport, policy=policy, workers=2, max_urgent_retries=20) as running,
    ):
        ledger = running.fast_path.ledger
        await cluster.add_node("n1", cpu="8")
        for number in range(20):
            await cluster.add_pod(f"old{number}", cpu="100m")
        await until(lambda: running.reports.attempts["scheduled"] == 20)
        held = HeldBinds(running.fast_path)
        await cluster.add_pod("underway", cpu="100m")
        await until(lambda: held.nodes)
        await cluster.ask("DELETE", "/api/v1/nodes/n1")
        for number in range(20):
            await cluster.ask("DELETE", f"{PODS}/old{number}?gracePeriodSeconds=0")
        await cluster.add_node("n1", cpu="1")
        await until(lambda: (known := ledger.node("n1")) is not None and known.allocatable["cpu"] == 1000)
        await until(lambda: len(ledger.placements) == 1)
        held.release()
        for number in range(9):
            await cluster.add_pod(f"new{number}", cpu="100m")
        await until(lambda: running.reports.attempts["scheduled"] == 30)
        # The bind that was under way counts on the new node: the server has the pod there.
        assert millicores(ledger, "n1") == 1000
        assert set((await cluster.placed()).values()) == {"n1"}
