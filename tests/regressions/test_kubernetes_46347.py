"""kubernetes #46347 (and #50916, fixed by #55262): the scheduler ended itself over a pod on another node than assumed.

What happened: a pod was assumed on one node and then seen bound to another. The cache corrected its nodes,
but not its own record of the pod; at the pod's next change it found the contradiction, called itself
corrupted and exited. The restarted process met the same pod again.

Conditions: another binds a pod while our bind of it is under way; later the pod changes and is deleted.

Ours: what the API server says corrects what was assumed, in all places at once, and nothing of it ends the
process.
"""

from __future__ import annotations

from tests.support.embedded import PODS, embedded_cluster, until
from tests.support.running import scheduling

from .stages import HeldBinds, millicores


async def test_a_pod_that_another_bound_elsewhere_is_where_the_server_has_it() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        ledger = running.fast_path.ledger
        held = HeldBinds(running.fast_path, only=lambda pod: pod.name == "a")
        await cluster.add_node("n1", cpu="1")
        await cluster.add_node("n2", cpu="1")
        await until(lambda: len(ledger.rows) == 2)
        await cluster.add_pod("a", cpu="1")
        await until(lambda: held.nodes)
        assumed = held.nodes["a"]
        other = "n2" if assumed == "n1" else "n1"
        await cluster.bind("a", other)
        await until(lambda: millicores(ledger, other) == 1000)
        assert millicores(ledger, assumed) == 0
        held.release()
        await until(lambda: running.reports.outcomes["bound elsewhere"])
        assert (millicores(ledger, assumed), millicores(ledger, other)) == (0, 1000)
        labels = {"metadata": {"labels": {"changed": "yes"}}}
        await cluster.ask("PATCH", f"{PODS}/a", labels, content_type="application/merge-patch+json")
        await cluster.ask("DELETE", f"{PODS}/a?gracePeriodSeconds=0")
        await until(lambda: millicores(ledger, other) == 0)
        for name in ("b", "c"):
            await cluster.add_pod(name, cpu="1")
        await until(lambda: running.reports.outcomes["bound"] == 2)
        assert set((await cluster.placed()).values()) == {"n1", "n2"}
        assert running.reports.failures == []
