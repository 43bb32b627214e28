"""kubernetes #63262: the generation of a node that came back under its name collided with that of its predecessor.

What happened: each node in the scheduler's cache counted its changes from zero. A node was deleted and added
again, its new count happened to equal the one that a snapshot remembered, and the snapshot took its stale
data for fresh.

Conditions: a node is replaced under its name by one of another size, with as many changes since.

Ours: versions are drawn from one counter and never given twice. A decision on the old node is seen as
outdated by the binder, and the next decision sees the new node.
"""

from __future__ import annotations

from tests.support.embedded import EmbeddedCluster, embedded_cluster, until
from tests.support.running import Running, scheduling

from .stages import HeldResults, refusal


async def _replace(cluster: EmbeddedCluster, running: Running, *, cpu: str) -> None:
    """Puts another node in n1's place and waits until the scheduler knows it."""
    await cluster.ask("DELETE", "/api/v1/nodes/n1")
    uid = (await cluster.add_node("n1", cpu=cpu))["metadata"]["uid"]

    def known() -> bool:
        node = running.fast_path.ledger.node("n1")
        return node is not None and node.uid == uid

    await until(known)


async def test_a_decision_on_a_node_does_not_hold_for_its_namesake() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        await cluster.add_node("n1", cpu="4")
        await until(lambda: running.fast_path.ledger.rows)
        held = HeldResults(running.fast_path)
        await cluster.add_pod("a", cpu="2")
        await until(lambda: held.results)
        await _replace(cluster, running, cpu="1")
        held.release()
        assert await refusal(cluster, "a") == "0/1 nodes are available: 1 Insufficient cpu."
        assert await cluster.placed() == {}


async def test_a_snapshot_does_not_take_a_node_for_its_namesake() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("a", cpu="2")
        await refusal(cluster, "a")
        await _replace(cluster, running, cpu="2")
        await until(cluster.placed)
        assert await cluster.placed() == {"a": "n1"}
        assert running.reports.counts["after flush"] == 0
