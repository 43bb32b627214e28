"""kubernetes_asyncio 36.1: a watch that the server closes at once was asked for again 2,000 times a second.

What happened: the client reconnects without a pause. It repeats a watch that was answered 410 with the very
version that is too old, and where it has none it hands a whole list over as added, so that deletions are
lost.

Conditions: a server that ends each watch at once, in order or with a reset, or calls every version too old.

Ours: attempts that bring nothing are made ever more slowly, up to a cap, whatever the way in which they fail;
after a 410 the whole is listed once more, and what it lacks is told as deleted.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, PodReader
from agent_scheduler.kube.reflector import Reflector
from agent_scheduler.kube.watch_events import Change
from embedded_kubernetes.errors import ApiError
from embedded_kubernetes.requests import Disturbance, Request
from tests.support.embedded import embedded_cluster, until
from tests.support.scripted import FakeTime

from .links import Tap, is_watch

FAULTS = {
    "dropped": Disturbance(drop=True),
    "closed in order": None,
    "too old": Disturbance(error=ApiError(410, "Expired", "too old resource version: 1 (2)")),
    "too many": Disturbance(error=ApiError(429, "TooManyRequests", "later")),
}
ATTEMPTS = 30


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_watch_that_fails_at_once_is_asked_for_ever_more_slowly(fault: str) -> None:
    tap = Tap()
    time = FakeTime()
    changes: list[Change[PodInfo]] = []
    async with embedded_cluster(disturb=tap) as cluster:
        await cluster.add_pod("a")

        def end_watches() -> None:
            for hub in (served.hub for served in cluster.api.registry.tables()):
                for watcher in hub.watchers():
                    watcher.end()

        def harm(request: Request) -> Disturbance | None:
            if is_watch(request):
                # For one that is let through: it is open when this returns, and closed before anything comes.
                asyncio.get_running_loop().call_soon(end_watches)
                return FAULTS[fault]
            return None

        tap.harm = harm
        reflector: Reflector[PodInfo] = Reflector(
            cluster.transport, "/api/v1/pods", PodReader(PodClasses()), changes.extend, timing=time.timing
        )
        running = asyncio.create_task(reflector.run())
        await until(lambda: tap.count(is_watch) >= ATTEMPTS)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        # Seconds that passed on the client's clock, which only its pauses move.
        assert sum(time.slept) > ATTEMPTS * 5
        assert len(changes) == 1
