"""Volcano #5939 (agent scheduler): the faster the workers, the more of their decisions were thrown away.

What happened: the binder accepted one bind for each version of a node that a worker had seen. All other
decisions on that version were conflicts, though the node had room for dozens, and went round again; six
workers were slower than four.

Conditions: a burst of small pods, few nodes, several workers.

Ours, under the default policy: a decision whose node has changed is asked again of the live ledger, and
stands as long as the pod still fits. A race is lost only where room was lost. (`strict` keeps the peer's
rule, on request.)
"""

from __future__ import annotations

import asyncio

from tests.support.embedded import embedded_cluster, until
from tests.support.running import scheduling

BURST = 100


async def test_a_node_with_room_for_all_costs_no_pod_a_second_attempt() -> None:
    async with embedded_cluster() as cluster:
        await cluster.add_node("n1", cpu="64")
        await asyncio.gather(*(cluster.add_pod(f"p{number}", cpu="10m") for number in range(BURST)))
        async with scheduling(cluster.transport, workers=6) as running:
            await until(lambda: running.reports.attempts["scheduled"] == BURST)
            decided = sum(running.reports.counts[f"worker {index}"] for index in range(6))
            assert decided == BURST
            assert (running.reports.conflicts, running.reports.urgent) == (0, {})
            # Without races this would prove nothing.
            assert running.reports.revalidated > 0
