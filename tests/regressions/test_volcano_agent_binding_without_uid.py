"""Volcano agent scheduler: a pod made again under its name was taken for the one that was decided on.

What happened: tasks on a node are keyed by namespace and name. A pod that was deleted and made again while
its predecessor's bind was under way met "already on node" at each attempt and was retried without end; a
binding without the pod's UID would even have bound the successor by a decision that was never about it.

Conditions: a StatefulSet's pod, say: deleted and created again under its name, of another size, while a bind
is on its way.

Ours: pods are known by UID, and every binding carries it, so the server refuses what was meant for the
predecessor. The successor is decided on for itself and bound once.
"""

from __future__ import annotations

import pytest

from agent_scheduler.kube.bind import BindOutcome
from tests.support.embedded import PODS, embedded_cluster, until
from tests.support.running import scheduling

from .links import watching_through_a_relay
from .stages import HeldBinds, millicores


@pytest.mark.parametrize("watch", ["tells", "is cut"])
async def test_a_bind_does_not_reach_the_successor(watch: str) -> None:
    async with (
        embedded_cluster() as cluster,
        watching_through_a_relay(cluster) as (transport, relay),
        scheduling(transport) as running,
    ):
        pods = running.fast_path.cluster.pods
        held = HeldBinds(running.fast_path, only=lambda pod: pod.uid == first)
        await cluster.add_node("small", cpu="1")
        await until(lambda: running.fast_path.ledger.rows)
        first = (await cluster.add_pod("a", cpu="1"))["metadata"]["uid"]
        await until(lambda: held.nodes)
        if watch == "is cut":
            relay.cut()
        await cluster.ask("DELETE", f"{PODS}/a")
        second = (await cluster.add_pod("a", cpu="2"))["metadata"]["uid"]
        if watch == "tells":
            await until(lambda: second in pods and first not in pods)
        held.release()
        await until(lambda: running.reports.outcomes[BindOutcome.RECREATED.value])
        assert await cluster.placed() == {}
        assert millicores(running.fast_path.ledger, "small") == 0
        relay.restore()
        await cluster.add_node("large", cpu="2")
        await until(lambda: running.reports.attempts["scheduled"])
        assert await cluster.placed() == {"a": "large"}
        assert set(running.fast_path.ledger.placements) == {second}
        # While no watch tells of the successor, the pod that is gone is tried again and refused again.
        outcomes = running.reports.outcomes
        assert (outcomes["bound"], set(outcomes)) == (1, {"recreated", "bound"})
