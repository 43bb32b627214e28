"""kubernetes #135900 (see #141893, #142123): one client-side limit for all requests let status writes starve binds.

What happened: conditions of pods that found no node are written with the same rate-limited client as binds.
With many such pods the limit is spent on conditions, and pods that do have a node wait for it behind
thousands of them.

Conditions: many refused pods, few that fit, and a client whose requests are limited or a server that is slow.

Ours: binds, conditions and events have budgets of their own, and the connections suffice for all of them at
once, so conditions that crawl or hang delay neither a decision nor a bind.
"""

from __future__ import annotations

from agent_scheduler.binding.calls import RateLimit
from embedded_kubernetes.requests import Disturbance, Request
from tests.features.fastpath.test_runtime import running as process
from tests.support.embedded import embedded_cluster, until
from tests.support.running import scheduling

from .links import Tap

REFUSED = 40


async def test_binds_do_not_wait_for_the_budgets_of_conditions_and_events() -> None:
    crawling = RateLimit(qps=0.001, burst=1, concurrency=1)
    async with (
        embedded_cluster() as cluster,
        scheduling(cluster.transport, status_writes=crawling, events=crawling) as running,
    ):
        await cluster.add_node("n1", cpu="4")
        for number in range(REFUSED):
            await cluster.add_pod(f"large{number}", cpu="8")
        await until(lambda: running.reports.attempts["unschedulable"] == REFUSED)
        for number in range(4):
            await cluster.add_pod(f"p{number}", cpu="1")
        await until(lambda: running.reports.attempts["scheduled"] == 4)
        assert running.reports.counts["status written"] <= 1


async def test_binds_do_not_wait_for_the_connections_of_conditions() -> None:
    tap = Tap()

    def stuck(request: Request) -> Disturbance | None:
        return Disturbance(delay=60) if request.path.endswith("/status") else None

    async with embedded_cluster(disturb=tap) as cluster:
        await cluster.add_node("n1", cpu="4")
        async with process(cluster, "bindConcurrency: 2\nshutdownGracePeriod: 100ms\n") as scheduler:
            tap.harm = stuck
            written = scheduler.runtime._settings.status_writes.concurrency
            for number in range(REFUSED):
                await cluster.add_pod(f"large{number}", cpu="8")
            await until(lambda: tap.count(lambda request: request.path.endswith("/status")) == written)
            for number in range(4):
                await cluster.add_pod(f"p{number}", cpu="1")

            async def placed() -> bool:
                return len(await cluster.placed()) == 4

            await until(placed)
