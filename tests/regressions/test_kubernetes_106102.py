"""kubernetes #106102 (and #85726, #124109): a pod deleted before its binding was seen stayed in the cache for ever.

What happened: a pod was bound and deleted while the watch was away. The last state that the scheduler had
seen was of a waiting pod, so the missed deletion was taken for that of a waiting pod: it left the queue, but
the room that had been assumed for it on the node was never given back, and other pods could not be scheduled.

Conditions: the watch breaks after a pod was popped; its bind succeeds; it is deleted; the watch cannot be
resumed.

Ours: a deletion frees whatever the pod holds, be it seen, assumed or confirmed by the answer to the bind
alone.
"""

from __future__ import annotations

from tests.support.embedded import PODS, embedded_cluster, until
from tests.support.running import scheduling

from .links import forget_history, watching_through_a_relay
from .stages import HeldBinds, millicores


async def test_a_pod_that_was_bound_and_deleted_unseen_leaves_nothing_behind() -> None:
    async with (
        embedded_cluster() as cluster,
        watching_through_a_relay(cluster) as (transport, relay),
        scheduling(transport) as running,
    ):
        held = HeldBinds(running.fast_path)
        await cluster.add_node("n1", cpu="1")
        pod = await cluster.add_pod("a", cpu="1")
        await until(lambda: held.nodes)
        relay.cut()
        held.release()
        await until(lambda: running.reports.outcomes["bound"])
        assert not running.fast_path.cluster.pods[pod["metadata"]["uid"]].node_name, (
            "the watch told after all"
        )
        await cluster.ask("DELETE", f"{PODS}/a?gracePeriodSeconds=0")
        forget_history(cluster)
        relay.restore()
        await until(lambda: not running.fast_path.cluster.pods)
        assert millicores(running.fast_path.ledger, "n1") == 0
        assert not running.fast_path.ledger.placements
        await cluster.add_pod("b", cpu="1")
        await until(cluster.placed)
        assert await cluster.placed() == {"b": "n1"}
