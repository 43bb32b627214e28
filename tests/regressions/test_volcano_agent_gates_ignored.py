"""Volcano agent scheduler: gated pods were scheduled, took room, and were refused by the server, over and over.

What happened: nothing asks for schedulingGates before a pod is queued. A gated pod got a node and room, the
API server refused its binding, and the pod was retried for as long as the gate stood, keeping others from the
room each time.

Conditions: a gated pod is first in the queue, and an ordinary pod needs the same room.

Ours: a gated pod is not tried, takes no room and costs no request; when its last gate goes it is tried at
once.
"""

from __future__ import annotations

from tests.support.embedded import PODS, embedded_cluster, until
from tests.support.running import scheduling

from .links import Tap


async def test_a_gated_pod_takes_nothing_from_others() -> None:
    tap = Tap()
    async with embedded_cluster(disturb=tap) as cluster, scheduling(cluster.transport) as running:
        await cluster.add_pod("gated", cpu="1", schedulingGates=[{"name": "example.com/quota"}])
        await cluster.add_pod("plain", cpu="1")
        await until(lambda: running.fast_path.queue.pending().gated == 1)
        await cluster.add_node("n1", cpu="1")
        await until(cluster.placed)
        assert await cluster.placed() == {"plain": "n1"}
        assert tap.binds("gated") == 0
        await cluster.ask("DELETE", f"{PODS}/plain?gracePeriodSeconds=0")
        lifted = [{"op": "remove", "path": "/spec/schedulingGates"}]
        await cluster.ask("PATCH", f"{PODS}/gated", lifted, content_type="application/json-patch+json")
        await until(lambda: running.reports.attempts["scheduled"] == 2)
        assert await cluster.placed() == {"gated": "n1"}
        assert tap.binds("gated") == 1
