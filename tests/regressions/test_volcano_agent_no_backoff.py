"""Volcano agent scheduler: a pod whose bind failed was tried again at once, and was in two queues.

What happened: the failed bind put the pod into backoff, but the condition that was written about it came back
over the watch as an update, and the handler queued the pod as active besides. There was no backoff, and each
pod counted twice.

Conditions: a bind that the server refuses for good; the watch tells of the condition that was written.

Ours: a pod is in one place, by UID. An update that says nothing new about what it needs leaves it there,
backoff and all.
"""

from __future__ import annotations

from agent_scheduler.engine.queueing.places import Place
from embedded_kubernetes.errors import ApiError
from embedded_kubernetes.requests import Disturbance, Request
from tests.support.embedded import embedded_cluster, until
from tests.support.running import scheduling

from .links import Tap, is_bind


async def test_the_echo_of_our_own_condition_does_not_end_a_backoff() -> None:
    tap = Tap()

    def denied(request: Request) -> Disturbance | None:
        return Disturbance(error=ApiError(403, "Forbidden", "denied")) if is_bind(request) else None

    tap.harm = denied
    async with (
        embedded_cluster(disturb=tap) as cluster,
        scheduling(cluster.transport, initial_backoff=60, max_backoff=60) as running,
    ):
        await cluster.add_node("n1")
        uid = (await cluster.add_pod("a"))["metadata"]["uid"]
        seen = running.fast_path.cluster.pods
        await until(lambda: uid in seen and seen[uid].condition)
        queue = running.fast_path.queue
        assert queue.where(uid) is Place.BACKOFF
        assert sum(queue.pending()) == 1
        # Another pod goes all the way: had the first been active, it would have been before it.
        tap.harm = lambda _request: None
        await cluster.add_pod("b")
        await until(cluster.placed)
        assert await cluster.placed() == {"b": "n1"}
        assert tap.binds("a") == 1
