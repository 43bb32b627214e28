"""Evictions that sessions ask for: who counts as leaving, and what becomes of one that fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from agent_scheduler.batch.committing import Evictions
from agent_scheduler.engine.state.podinfo import PodInfo
from kube_client.errors import Failure, FailureClass
from kube_client.eviction import Evicted
from kube_client.testing.virtual import virtual_time
from tests.support.engine import World as EngineWorld
from tests.support.engine import pod_json, read_pod

FAILED = Evicted.FAILED, Failure(FailureClass.TRANSIENT, message="told so")


class World:
    """The API server answers each eviction by the next of `answers`, or by none as long as `answered` is not set."""

    def __init__(self, *answers: tuple[Evicted, Failure | None]) -> None:
        self.classes = EngineWorld().classes
        self.pods: dict[str, PodInfo] = {}
        self.answers = list(answers)
        self.asked: list[str] = []
        self.wanted: Callable[[], bool] = bool
        self.answered = asyncio.Event()
        self.answered.set()
        self.tries = 0
        self.failed: list[str] = []
        observer: Any = SimpleNamespace(eviction_failed=lambda victim, problem: self.failed.append(problem))
        cluster: Any = SimpleNamespace(pods=self.pods)
        self.evictions = Evictions(cluster, self.evict, observer, try_again=self.try_again)

    def try_again(self) -> None:
        self.tries += 1

    async def evict(
        self, victim: PodInfo, *, message: str, wanted: Callable[[], bool]
    ) -> tuple[Evicted, Failure | None]:
        self.asked.append(f"{victim.name}: {message}")
        self.wanted = wanted
        await self.answered.wait()
        return self.answers.pop(0)

    def pod(self, name: str) -> Any:
        """A task of a session."""
        body = pod_json(name, nodeName="a")
        body["metadata"]["uid"] = name
        self.pods[name] = read_pod(body, self.classes)
        return SimpleNamespace(uid=name)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Evictions]:
        running = asyncio.create_task(self.evictions.run())
        try:
            yield self.evictions
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


@virtual_time
async def test_a_victim_whose_eviction_failed_does_not_count_as_leaving_and_is_asked_again() -> None:
    world = World(FAILED, FAILED, (Evicted.DELETED, None))
    victim = world.pod("v")
    async with world.running() as evictions:
        for tries in (1, 2):
            assert evictions.evict(victim, "by g")
            assert evictions.is_leaving("v")
            await asyncio.sleep(1)
            assert not evictions.is_leaving("v")
            assert (world.tries, len(world.failed)) == (tries, tries)
        assert evictions.evict(victim, "by g")
        await asyncio.sleep(1)
        assert evictions.is_leaving("v") and world.tries == 2
    assert world.asked == ["v: by g"] * 3


@virtual_time
async def test_a_victim_counts_as_leaving_until_the_watch_shows_that_it_does_and_is_asked_once() -> None:
    world = World((Evicted.DELETED, None), (Evicted.DELETED, None))
    victim, other = world.pod("v"), world.pod("w")
    async with world.running() as evictions:
        assert evictions.evict(victim, "by g") and evictions.evict(victim, "by h")
        assert evictions.evict(other, "by g")
        await asyncio.sleep(1)
        evictions.see()
        assert evictions.is_leaving("v") and evictions.is_leaving("w")
        world.pods["v"] = replace(world.pods["v"], deleting=True)
        del world.pods["w"]
        evictions.see()
        assert not evictions.is_leaving("v") and not evictions.is_leaving("w")
        # Neither one that leaves already nor one that is gone is evicted.
        assert not evictions.evict(victim, "by g") and not evictions.evict(other, "by g")
    assert world.asked == ["v: by g", "w: by g"]


@virtual_time
async def test_an_eviction_is_wanted_as_long_as_its_victim_exists() -> None:
    world = World((Evicted.DELETED, None))
    victim = world.pod("v")
    async with world.running() as evictions:
        evictions.evict(victim, "by g")
        await asyncio.sleep(1)
        assert world.wanted()
        del world.pods["v"]
        assert not world.wanted()


@virtual_time
async def test_evictions_that_are_not_sent_when_the_process_stops_leading_leave_nobody_leaving() -> None:
    world = World((Evicted.DELETED, None))
    world.answered.clear()
    first, second = world.pod("v"), world.pod("w")
    async with world.running() as evictions:
        evictions.evict(first, "by g")
        await asyncio.sleep(1)
        evictions.evict(second, "by g")
    assert not world.evictions.is_leaving("v") and not world.evictions.is_leaving("w")
    async with world.running():
        await asyncio.sleep(1)
    assert world.asked == ["v: by g"]
