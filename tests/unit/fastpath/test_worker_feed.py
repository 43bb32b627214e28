"""The blocking pop: no wake-up is lost on its way to whoever waits."""

from __future__ import annotations

import asyncio

from agent_scheduler.cluster.cluster import Entry
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.fastpath.worker import Feed
from kube_client.testing.virtual import virtual_time
from tests.support.engine import pod_json, read_pod
from tests.support.queues import scheduling_queue
from tests.support.running import AGENT


class World:
    """A feed on a queue that tells nobody by itself, and somebody who waits."""

    def __init__(self) -> None:
        self.feed = Feed()
        self.queue: SchedulingQueue = scheduling_queue({"agent-scheduler": AGENT.hint_map()})
        self.has_room = True
        self.waiter = self.wait()

    def wait(self) -> asyncio.Task[Entry | None]:
        return asyncio.create_task(self.feed.pop(self.queue, lambda: self.has_room))

    def add(self, *names: str) -> None:
        classes = PodClasses()
        for name in names:
            self.queue.add(read_pod(pod_json(name), classes))

    async def popped(self) -> str | None:
        entry = await asyncio.wait_for(self.waiter, 2)
        return None if entry is None else entry.pod.name


@virtual_time
async def test_a_pod_reaches_the_one_who_waits() -> None:
    world = World()
    await asyncio.sleep(0)
    world.add("a", "b")
    world.feed.wake()
    assert await world.popped() == "a"
    rest = world.feed.next(world.queue, lambda: True)
    assert rest is not None and rest.pod.name == "b"
    assert world.feed.next(world.queue, lambda: True) is None


@virtual_time
async def test_a_pod_stays_in_the_queue_while_there_is_no_room_for_what_comes_of_it() -> None:
    world = World()
    world.has_room = False
    world.add("a")
    world.feed.wake()
    await asyncio.sleep(60)
    assert not world.waiter.done()
    assert world.queue.pending().active == 1
    world.has_room = True
    world.feed.wake()
    assert await world.popped() == "a"


@virtual_time
async def test_a_pod_is_not_lost_with_one_who_is_cancelled_on_the_way_to_it() -> None:
    world = World()
    await asyncio.sleep(0)
    world.add("a")
    world.feed.wake()
    world.waiter.cancel()
    await asyncio.sleep(0)
    # Told of nothing new: it is there.
    world.waiter = world.wait()
    assert await world.popped() == "a"


@virtual_time
async def test_closing_the_queue_ends_the_wait() -> None:
    world = World()
    await asyncio.sleep(0)
    world.queue.close()
    world.feed.wake()
    assert await world.popped() is None
