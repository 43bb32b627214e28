"""kubernetes #55587 (and #51313, #69926): a pod's deletion that the scheduler never heard of kept its room taken.

What happened: the API server went away between the deletion of a bound pod and the event that tells of it.
The list that followed lacked the pod, but the handlers did not understand how a missed deletion is told (a
tombstone), so the node stayed full for the scheduler, and pods waited for room that was there, until a
restart.

Conditions: the watch breaks, a bound pod is deleted, and the server cannot resume the watch (410).

Ours: the next list frees the room of every pod that it lacks, and wakes those who wait for it.
"""

from __future__ import annotations

from tests.support.embedded import PODS, embedded_cluster, until
from tests.support.running import scheduling

from .links import forget_history, watching_through_a_relay
from .stages import millicores, refusal


async def test_the_room_of_a_pod_whose_deletion_was_missed_goes_to_who_waits_for_it() -> None:
    async with (
        embedded_cluster() as cluster,
        watching_through_a_relay(cluster) as (transport, relay),
        scheduling(transport) as running,
    ):
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("first", cpu="1")
        await until(cluster.placed)
        await cluster.add_pod("second", cpu="1")
        await refusal(cluster, "second")
        relay.cut()
        await cluster.ask("DELETE", f"{PODS}/first?gracePeriodSeconds=0")
        forget_history(cluster)
        relay.restore()
        await until(cluster.placed)
        assert await cluster.placed() == {"second": "n1"}
        assert millicores(running.fast_path.ledger, "n1") == 1000
        assert running.reports.counts["after flush"] == 0
