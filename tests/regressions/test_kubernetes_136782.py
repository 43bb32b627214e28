"""kubernetes #136782: 168 pods were bound within seconds to one node that takes 110, and 58 of them failed there.

What happened: after nodes had been scaled, a burst met a node that was all but empty, and everything went
there. Why is not settled upstream; decisions on a view that trailed the node's true count are the suspect.

Conditions: many more pods than one new node can take, decided faster than their bindings come back over the
watch.

Ours: room is taken in the ledger before a bind is sent, by every worker in the same place, so no burst can
outrun it. What a new leader knows of its predecessor's last binds is test_kubernetes_137308.
"""

from __future__ import annotations

import asyncio

import pytest

from agent_scheduler.engine.decide.decide import ConflictPolicy
from tests.support.embedded import embedded_cluster, until
from tests.support.running import scheduling

from .links import watching_through_a_relay

BURST = 168
PODS_PER_NODE = 110


@pytest.mark.parametrize("policy", list(ConflictPolicy))
async def test_a_burst_stops_at_what_the_node_takes(policy: ConflictPolicy) -> None:
    async with (
        embedded_cluster() as cluster,
        watching_through_a_relay(cluster) as (transport, relay),
        scheduling(
            transport,
            workers=8,
            policy=policy,
            max_urgent_retries=1000,
            max_in_unschedulable=1e6,
            events=None,
        ) as running,
    ):
        await asyncio.gather(*(cluster.add_pod(f"p{number}", cpu="1m") for number in range(BURST)))
        await until(lambda: running.reports.attempts["unschedulable"] == BURST)
        await cluster.add_node("n1", cpu="64", pods=str(PODS_PER_NODE))
        await until(lambda: running.fast_path.ledger.rows)
        # No binding comes back over the watch.
        relay.cut()
        await until(lambda: running.fast_path.queue.pending().unschedulable == BURST - PODS_PER_NODE)
        await until(lambda: running.fast_path.binder.in_flight == 0)
        assert len(await cluster.placed()) == PODS_PER_NODE
        assert running.reports.outcomes == {"bound": PODS_PER_NODE}
