"""Volcano #1383: room was not taken before the bind had succeeded, so slow binds overcommitted nodes.

What happened: binds ran beside the scheduling loop. Under load one took more than a second, the next session
began with a cache that did not count the pods under way, and kubelets failed what it sent to the same room
(OutOfcpu).

Conditions: an API server that answers binds slowly.

Ours: room is taken before the bind is sent and held until its outcome is known; who finds none left waits,
and is woken if the bind comes to nothing.
"""

from __future__ import annotations

from agent_scheduler.kube.bind import BindOutcome
from tests.support.embedded import PODS, embedded_cluster, until
from tests.support.running import scheduling

from .stages import HeldBinds, millicores, refusal


async def test_room_is_taken_from_the_moment_a_bind_is_under_way() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport, workers=4) as running:
        held = HeldBinds(running.fast_path)
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("slow", cpu="1")
        await until(lambda: held.nodes)
        await cluster.add_pod("next", cpu="1")
        assert await refusal(cluster, "next") == "0/1 nodes are available: 1 Insufficient cpu."
        assert await cluster.placed() == {}
        await cluster.ask("DELETE", f"{PODS}/slow")
        await until(lambda: held.nodes.get("next"))
        held.release()
        await until(lambda: running.reports.outcomes[BindOutcome.BOUND.value])
        assert await cluster.placed() == {"next": "n1"}
        assert millicores(running.fast_path.ledger, "n1") == 1000
