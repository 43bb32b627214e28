"""Volcano #6010: a decision on an object that the API server has in a newer version already.

What happened: a pod group was changed while the scheduler's cache still had its old policy. Pods that came in
that window were bound by the old one, as a part of a gang that should have been whole.

Conditions: an object changes at the server, the watch has not told yet, and a decision is carried out.

Ours, where there are no pod groups: a decision is carried out only on the pod that it was made for, as it was
then. What the watch has told of by then (a change, a deletion) is looked at before room is taken, and a pod
that is deleted while it loses a race is neither retried nor spoken of. What the watch has not told of is left
to the server's own checks, by UID.
"""

from __future__ import annotations

from tests.support.embedded import PODS, embedded_cluster, until
from tests.support.running import scheduling

from .links import watching_through_a_relay
from .stages import HeldBinds, HeldResults, millicores, refusal


async def test_a_pod_that_changed_after_its_decision_is_decided_anew() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        held = HeldResults(running.fast_path)
        await cluster.add_node("n1", cpu="1")
        uid = (await cluster.add_pod("a", cpu="1"))["metadata"]["uid"]
        await until(lambda: held.results)
        grown = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
        await cluster.ask(
            "PATCH", f"{PODS}/a/resize", grown, content_type="application/strategic-merge-patch+json"
        )
        await until(lambda: running.fast_path.cluster.pods[uid].cls is not held.results[0].pod.cls)
        held.release()
        assert await refusal(cluster, "a") == "0/1 nodes are available: 1 Insufficient cpu."
        assert await cluster.placed() == {}


async def test_a_deleted_pod_that_lost_its_nodes_is_not_retried() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        held = HeldResults(running.fast_path)
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("a", cpu="1")
        await until(lambda: held.results)
        await cluster.add_pod("foreign", cpu="1", scheduler="another")
        await cluster.bind("foreign", "n1")
        await until(lambda: millicores(running.fast_path.ledger, "n1") == 1000)
        await cluster.ask("DELETE", f"{PODS}/a")
        await until(lambda: len(running.fast_path.cluster.pods) == 1)
        held.release()
        await until(lambda: running.fast_path.binder.in_flight == 0)
        await running.stop()
        assert sum(running.fast_path.queue.pending()) == 0
        assert running.reports.urgent == {}
        assert running.reports.counts["status written"] == 0
        assert running.reports.counts["event recorded"] == 0


async def test_a_deleted_pod_of_which_the_watch_did_not_tell_is_not_reported_and_dropped_when_it_tells() -> (
    None
):
    async with (
        embedded_cluster() as cluster,
        watching_through_a_relay(cluster) as (transport, relay),
        scheduling(transport) as running,
    ):
        held = HeldBinds(running.fast_path)
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("a", cpu="1")
        await until(lambda: held.nodes)
        relay.cut()
        await cluster.ask("DELETE", f"{PODS}/a")
        held.release()
        await until(lambda: running.reports.outcomes["gone"])
        assert millicores(running.fast_path.ledger, "n1") == 0
        relay.restore()
        await until(lambda: not running.fast_path.cluster.pods)
        assert sum(running.fast_path.queue.pending()) == 0
        await running.stop()
        assert running.reports.counts["status written"] == 0
        assert running.reports.counts["event recorded"] == 0
