"""kubernetes #94437 (and #56261): a node's deletion that the scheduler never heard of kept the node alive for it.

What happened: the watch lost the deletion of a node. The scheduler went on choosing the node for pods that
could then never run, until it was restarted.

Conditions: the connection of the watch breaks, and the node is deleted before it is back; the server still
has the history to resume from, or has it no more (410).

Ours: once the watch is back, resumed or taken anew, a node that no longer exists is forgotten and nothing is
bound to it.
"""

from __future__ import annotations

import pytest

from tests.support.embedded import embedded_cluster, until
from tests.support.running import scheduling

from .links import forget_history, watching_through_a_relay
from .stages import refusal


@pytest.mark.parametrize("history", ["kept", "lost"])
async def test_nothing_is_bound_to_a_node_whose_deletion_was_missed(history: str) -> None:
    async with (
        embedded_cluster() as cluster,
        watching_through_a_relay(cluster) as (transport, relay),
        scheduling(transport) as running,
    ):
        await cluster.add_node("gone")
        await until(lambda: running.fast_path.ledger.rows)
        relay.cut()
        await cluster.ask("DELETE", "/api/v1/nodes/gone")
        if history == "lost":
            forget_history(cluster)
        relay.restore()
        await until(lambda: "gone" not in running.fast_path.ledger.rows)
        await cluster.add_pod("a")
        assert await refusal(cluster, "a") == "no nodes available to schedule pods"
        await cluster.add_node("here")
        await until(lambda: running.reports.attempts["scheduled"])
        assert await cluster.placed() == {"a": "here"}
        assert running.reports.outcomes == {"bound": 1}
