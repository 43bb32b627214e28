"""Volcano #5924 (agent scheduler; also #5167, #5179): a pod on a node that nobody knows ended the process.

What happened: a pod was bound to a node that the cache did not have, because the node was deleted under its
pods, or was filtered out. The cache kept a placeholder without a node for it, the next incremental snapshot
included the placeholder and dereferenced what was not there. Each restart met the same pod and panicked
again.

Conditions: one bound pod whose node does not exist, and one pod that waits.

Ours: such a pod is known without a node's row; it harms no decision, and takes its room should the node
appear.
"""

from __future__ import annotations

import pytest

from tests.support.embedded import embedded_cluster, until
from tests.support.running import scheduling

from .stages import millicores, refusal


@pytest.mark.parametrize("seen", ["listed", "watched"])
async def test_a_pod_on_an_unknown_node_harms_nobody_and_counts_when_the_node_appears(seen: str) -> None:
    async with embedded_cluster() as cluster:
        if seen == "listed":
            await cluster.add_pod("orphan", cpu="1", scheduler="another", nodeName="later")
        async with scheduling(cluster.transport) as running:
            if seen == "watched":
                await cluster.add_pod("orphan", cpu="1", scheduler="another", nodeName="later")
            await until(lambda: running.fast_path.ledger.placements)
            await cluster.add_pod("a", cpu="1")
            await refusal(cluster, "a")
            await cluster.add_node("n1", cpu="1")
            await until(lambda: running.reports.attempts["scheduled"])
            await cluster.add_node("later", cpu="1")
            await until(lambda: millicores(running.fast_path.ledger, "later") == 1000)
            await cluster.add_pod("b", cpu="1")
            assert await refusal(cluster, "b") == "0/2 nodes are available: 2 Insufficient cpu."
            assert running.reports.failures == []
