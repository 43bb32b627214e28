"""What waits between workers and binder is bounded, and workers go on as soon as there is room again."""

from __future__ import annotations

import asyncio

from agent_scheduler.fastpath.settings import RateLimit
from tests.embedded import embedded_cluster, until

from .running import scheduling
from .test_bind_outcomes import Held

ONE_AT_A_TIME = RateLimit(qps=0, burst=None, concurrency=1)


async def test_no_more_is_decided_than_the_binder_has_room_for_and_all_are_bound_in_the_end() -> None:
    async with (
        embedded_cluster() as cluster,
        scheduling(cluster.transport, binds=ONE_AT_A_TIME, workers=4) as running,
    ):
        held = Held(running)
        await cluster.add_node("n1")
        await until(lambda: running.fast_path.ledger.rows)
        for number in range(20):
            await cluster.add_pod(f"p{number}")
        queue = running.fast_path.queue
        await until(lambda: queue.pending().active + queue.pending().in_flight == 20)
        await until(lambda: running.fast_path.binder.in_flight == 3)
        await asyncio.sleep(0.05)
        # One is being bound and two wait for it; the others stay where a pod of higher priority can pass them.
        assert running.fast_path.binder.in_flight == queue.pending().in_flight == 3
        held.go.set()
        await until(lambda: running.reports.attempts["scheduled"] == 20, seconds=10)
