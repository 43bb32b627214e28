"""What waits between workers and binder is bounded, and workers go on as soon as there is room again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_scheduler.binding.calls import RateLimit
from agent_scheduler.kube.transport import Answered, Response
from tests.support.embedded import embedded_cluster, until
from tests.support.running import scheduling

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


class Throttling:
    """A transport whose server refuses every bind that is begun while `throttles`."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.throttles = True

    def start(self, method: str, path: str, *, answered: Answered, **more: Any) -> bool:
        if self.throttles and path.endswith("/binding"):
            refusal = Response(429, b'{"kind":"Status","apiVersion":"v1","code":429}', {"Retry-After": "0"})
            asyncio.get_running_loop().call_soon(answered, refusal)
            return True
        return bool(self._inner.start(method, path, answered=answered, **more))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize(("qps", "fewer"), [(0, True), (500, False)])
async def test_fewer_binds_are_under_way_where_the_server_says_so_unless_there_is_a_rate(
    qps: int, fewer: bool
) -> None:
    binds = RateLimit(qps=qps, burst=None, concurrency=64)
    async with embedded_cluster() as cluster:
        transport = Throttling(cluster.transport)
        async with scheduling(transport, binds=binds) as running:
            binder = running.fast_path.binder
            before = binder.concurrency
            await cluster.add_node("n1", cpu="64")
            for number in range(20):
                await cluster.add_pod(f"p{number}")
            await until(lambda: running.reports.attempts["scheduled"] == 20)
            assert (binder.concurrency < before) is fewer
            assert before == (32 if fewer else 64)
