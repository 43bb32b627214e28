"""kubernetes_asyncio 36.1 (#402): a refused request returned like a successful one.

What happened: asked for the raw answer (`_preload_content=False`, as fast callers and its dynamic client do),
the client checks no status. A binding that was answered 409 raised nothing, so a scheduler took a pod for
bound that another had.

Conditions: the pod has a node already, and the watch has not told yet.

Ours: nothing but a 201 means bound. After any other answer the pod itself is asked, and what it says is
carried out: here the room is given back, no success is counted and no Scheduled event is written.
"""

from __future__ import annotations

from tests.support.embedded import embedded_cluster, until
from tests.support.running import scheduling

from .links import watching_through_a_relay
from .stages import HeldBinds, millicores


async def test_a_conflict_is_not_taken_for_a_bind() -> None:
    async with (
        embedded_cluster() as cluster,
        watching_through_a_relay(cluster) as (transport, relay),
        scheduling(transport) as running,
    ):
        held = HeldBinds(running.fast_path)
        for name in ("n1", "n2"):
            await cluster.add_node(name, cpu="1")
        await until(lambda: len(running.fast_path.ledger.rows) == 2)
        await cluster.add_pod("a", cpu="1")
        await until(lambda: held.nodes)
        assumed = held.nodes["a"]
        relay.cut()
        await cluster.bind("a", "n2" if assumed == "n1" else "n1")
        held.release()
        await until(lambda: sum(running.reports.outcomes.values()))
        assert running.reports.outcomes == {"bound elsewhere": 1}
        assert millicores(running.fast_path.ledger, assumed) == 0
        await running.stop()
        assert running.reports.attempts["scheduled"] == 0
        assert running.reports.counts["event recorded"] == 0
