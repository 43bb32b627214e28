"""The queue's blocking pop: whoever has pods decided on waits here for the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agent_scheduler.cluster.cluster import Entry
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.state.podinfo import PodInfo


class Feed:
    """Hands pods to the one who waits for them. `wake` is the queue's `on_ready`.

    A pod is never lost between a wake-up and a cancelled waiter: until somebody pops it, it stays in the queue.
    """

    def __init__(self) -> None:
        self._queue: SchedulingQueue[PodInfo] | None = None
        #: Set while somebody waits.
        self._waiter: asyncio.Future[None] | None = None

    def attach(self, queue: SchedulingQueue[PodInfo]) -> None:
        self._queue = queue

    def wake(self) -> None:
        """Something may be poppable now, or the queue was closed."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def next(self, room: Callable[[], bool]) -> Entry | None:
        """The next pod, if there is one and `room` is true."""
        assert self._queue is not None, "attached before the first worker starts"
        return self._queue.pop() if self._queue.has_ready and room() else None

    async def pop(self, room: Callable[[], bool]) -> Entry | None:
        """The next pod, as soon as there is one and `room` is true; None once the queue is closed."""
        queue = self._queue
        assert queue is not None, "attached before the first worker starts"
        while not queue.closed:
            entry = self.next(room)
            if entry is not None:
                return entry
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return None
