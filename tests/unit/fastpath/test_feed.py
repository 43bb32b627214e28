"""The blocking pop: no wake-up is lost on its way to a worker, and one that means many pods reaches many."""

from __future__ import annotations

import asyncio

from agent_scheduler.engine.podclass import PodClasses
from agent_scheduler.engine.podinfo import PodInfo
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.fastpath.feed import Entry, Feed
from tests.unit.engine.world import pod_json, read_pod

from .running import AGENT


class World:
    """A feed on a queue that tells nobody by itself, and as many waiting workers as asked for."""

    def __init__(self, waiters: int) -> None:
        self.feed = Feed()
        self.queue: SchedulingQueue[PodInfo] = SchedulingQueue(
            clock=lambda: 0.0, hint_maps={"agent-scheduler": AGENT.hint_map()}
        )
        self.feed.attach(self.queue)
        self.waiters = [asyncio.create_task(self.feed.pop(lambda: True)) for _ in range(waiters)]

    def add(self, *names: str) -> None:
        classes = PodClasses()
        for name in names:
            self.queue.add(read_pod(pod_json(name), classes))

    async def popped(self) -> list[Entry | None]:
        return await asyncio.wait_for(asyncio.gather(*self.waiters), 2)


async def test_one_wake_up_for_many_pods_reaches_as_many_workers() -> None:
    world = World(3)
    await asyncio.sleep(0)
    world.add("a", "b", "c")
    world.feed.wake()
    assert sorted(entry.pod.name for entry in await world.popped() if entry) == ["a", "b", "c"]


async def test_a_worker_that_is_cancelled_on_its_way_passes_its_wake_up_on() -> None:
    world = World(2)
    await asyncio.sleep(0)
    world.add("a")
    world.feed.wake()
    world.waiters.pop(0).cancel()
    (entry,) = await world.popped()
    assert entry is not None and entry.pod.name == "a"


async def test_closing_the_queue_ends_every_wait() -> None:
    world = World(3)
    await asyncio.sleep(0)
    world.queue.close()
    world.feed.wake()
    assert await world.popped() == [None, None, None]
