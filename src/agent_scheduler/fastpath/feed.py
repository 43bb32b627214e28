"""The queue's blocking pop: workers wait here for the next pod."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from agent_scheduler.engine.podinfo import PodInfo
from agent_scheduler.engine.queueing.entry import QueuedPodInfo
from agent_scheduler.engine.queueing.queue import SchedulingQueue

Entry = QueuedPodInfo[PodInfo]


class Feed:
    """Hands pods to whoever waits. `wake` is the queue's `on_ready`.

    Owner of the waiters. One is woken at a time and wakes the next when it got something, so a burst reaches all
    workers and a single pod bothers one. A pod is never lost between a wake-up and a cancelled waiter: until
    somebody pops it, it stays in the queue, and a waiter that cannot use its wake-up passes it on.
    """

    def __init__(self) -> None:
        self._queue: SchedulingQueue[PodInfo] | None = None
        self._waiters: deque[asyncio.Future[None]] = deque()

    def attach(self, queue: SchedulingQueue[PodInfo]) -> None:
        self._queue = queue

    def wake(self) -> None:
        """Something may be poppable now, or the queue was closed."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def pop(self, room: Callable[[], bool]) -> Entry | None:
        """The next pod, as soon as there is one and `room` is true; None once the queue is closed."""
        queue = self._queue
        assert queue is not None, "attached before the first worker starts"
        while not queue.closed:
            if room():
                entry = queue.pop()
                if entry is not None:
                    self.wake()
                    return entry
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self.wake()
                raise
        self.wake()
        return None
