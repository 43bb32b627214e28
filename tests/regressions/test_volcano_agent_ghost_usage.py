"""Volcano agent scheduler: the room of a bind that failed stayed taken in the workers' snapshots.

What happened: a refused bind removed its task from the cached node without raising the node's generation, so
snapshots went on counting it until something else changed the node. Pods that would have fitted were refused.

Conditions: the API server refuses a bind for good (an admission webhook, say); nothing else happens on the
node.

Ours: giving room back is a change of the node like taking it. It is seen by the next decision, and wakes who
waits for it.
"""

from __future__ import annotations

from embedded_kubernetes.errors import ApiError
from embedded_kubernetes.requests import Disturbance, Request
from tests.support.embedded import embedded_cluster, until
from tests.support.running import scheduling

from .links import Tap, is_bind


async def test_the_room_of_a_refused_bind_goes_to_the_next_pod_at_once() -> None:
    tap = Tap()

    def denied(request: Request) -> Disturbance | None:
        if is_bind(request) and "/denied/" in request.path:
            return Disturbance(error=ApiError(403, "Forbidden", "denied by a webhook"))
        return None

    tap.harm = denied
    async with (
        embedded_cluster(disturb=tap) as cluster,
        scheduling(cluster.transport, workers=4, initial_backoff=60, max_backoff=60) as running,
    ):
        await cluster.add_node("n1", cpu="1")
        await until(lambda: running.fast_path.ledger.rows)
        await cluster.add_pod("denied", cpu="1")
        await cluster.add_pod("waiting", cpu="1")
        await until(lambda: running.reports.outcomes["refused"])
        await cluster.add_pod("later", cpu="1")
        await until(cluster.placed)
        assert len(await cluster.placed()) == 1
        assert "denied" not in await cluster.placed()
        assert running.reports.counts["after flush"] == 0
