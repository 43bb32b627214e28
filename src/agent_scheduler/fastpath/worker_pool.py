"""All workers, and when each has its turn.

A worker's cycle is synchronous, so workers do not run side by side: they take turns. In a round each of them decides on
one pod, all on the cluster as it is before the round; then the binder settles what races there were between them. That
is where conflicts come from in one process, apart from what watches bring while a result waits: among the pods of one
round, of which there are as many as workers. One worker alone never races.

Decisions that take more than one cycle are gone on with one at a time, one cycle between two turns.

Several rounds make a turn of the event loop, and binds are sent when it ends: to go through the loop for each pod, and
from one kind of work to another, costs as much as a quarter of all that is done for a plain one (docs/decisions/0014).
To place all that wait would let watches, answers and pods of higher priority wait for too long.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from agent_scheduler.binding.binder import Binder
from agent_scheduler.cluster.cluster import Entry
from agent_scheduler.engine.dra.catalogue import PORTION, SearchBudget
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.state.podinfo import PodInfo

from .worker import Unfinished, Worker

#: Pods that are decided on in one turn of the event loop, unless one round has more; and seconds after which no further
#: round is begun.
_PODS: Final = 16
_SECONDS: Final = 0.002


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


class WorkerPool:
    """The workers of one binder, which take pods from one feed."""

    def __init__(
        self,
        workers: Sequence[Worker],
        *,
        feed: Feed,
        binder: Binder,
        clock: Callable[[], float],
        search: SearchBudget | None = None,
    ) -> None:
        """`search`: what decisions may cost in one turn, theirs anew in each; None: nobody counts."""
        self._search = search or SearchBudget()
        #: Whose turn it is. Pods that come one at a time go to one after the other.
        self._workers = itertools.cycle(workers)
        self._in_a_round = len(workers)
        self._rounds = max(1, _PODS // len(workers))
        self._feed = feed
        self._binder = binder
        self._clock = clock
        #: Pods that are in flight, in the order in which they are gone on with.
        self._unfinished: deque[Unfinished] = deque()

    async def run(self) -> None:
        """Until the queue is closed, or cancelled."""
        has_room = self._binder.has_room
        while True:
            goes_on = bool(self._unfinished) and has_room()
            entry = self._feed.next(has_room) if goes_on else await self._feed.pop(has_room)
            if entry is not None:
                self._search.left = PORTION
                self._turn(entry)
            elif not goes_on:
                return
            if goes_on:
                self._search.left = PORTION
                self._keep(self._unfinished.popleft().go_on())
                self._binder.judge()
            self._binder.send()
            await asyncio.sleep(0)

    def _keep(self, unfinished: Unfinished | None) -> None:
        if unfinished is not None:
            self._unfinished.append(unfinished)

    def _turn(self, first: Entry) -> None:
        ends = self._clock() + _SECONDS
        entry: Entry | None = first
        for _ in range(self._rounds):
            if not self._round(entry) or self._clock() >= ends:
                return
            entry = None

    def _round(self, entry: Entry | None) -> bool:
        """Whether there was a pod for each worker; `entry` is the first's, where it has been popped already."""
        for place in range(self._in_a_round):
            entry = entry or self._feed.next(self._binder.has_room)
            if entry is None:
                if place:
                    self._binder.judge()
                return False
            self._keep(next(self._workers).cycle(entry))
            entry = None
        self._binder.judge()
        return True
