"""kubernetes #60469 (caused by #52479, see #63002): a second scheduler filled nodes that were full already.

What happened: the scheduler's watch asked for pods of its own schedulerName alone. Run beside the default
scheduler, it never saw the pods that the other had placed, took nodes for empty, and kubelets failed what it
sent there (OutOfmemory).

Conditions: pods of several schedulers on the same nodes.

Ours: every pod on a node is counted, whoever placed it and whatever scheduler it names; pods of others are
only not queued.
"""

from __future__ import annotations

from tests.support.embedded import PODS, embedded_cluster, until
from tests.support.running import scheduling

from .stages import millicores, refusal


async def test_pods_of_other_schedulers_take_their_room() -> None:
    async with embedded_cluster() as cluster:
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("listed", cpu="300m", scheduler="default-scheduler")
        await cluster.bind("listed", "n1")
        async with scheduling(cluster.transport) as running:
            await cluster.add_pod("watched", cpu="300m", scheduler="default-scheduler")
            await cluster.bind("watched", "n1")
            await until(lambda: millicores(running.fast_path.ledger, "n1") == 600)
            await cluster.add_pod("ours", cpu="600m")
            assert await refusal(cluster, "ours") == "0/1 nodes are available: 1 Insufficient cpu."
            await cluster.ask("DELETE", f"{PODS}/listed?gracePeriodSeconds=0")
            await until(lambda: running.reports.attempts["scheduled"])
            assert await cluster.placed() == {"watched": "n1", "ours": "n1"}
