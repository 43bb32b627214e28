"""A queue of distinct keys with delays and retries, after client-go's workqueue."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from typing import Final

from kube_client.retry import Backoff, Timing

_BACKOFF: Final = Backoff(initial=0.1, cap=30.0)


class WorkQueue:
    """Owner of the waiting keys, and of their numbers of failures.

    Invariants: a key waits at most once, and is worked on at most once at a time; a key that is put while it is worked
    on is worked on again; a failed key waits longer each time, unless it is put meanwhile with a shorter delay.
    """

    def __init__(
        self,
        work: Callable[[str], Awaitable[bool]],
        *,
        workers: int,
        timing: Timing,
        settle: float = 0.0,
        backoff: Backoff = _BACKOFF,
    ) -> None:
        """Create the queue; `work` returns whether it is done with the key, and an exception from it ends `run`.

        `settle` is the delay in seconds from a change to its work, so that changes in that time are handled together.
        """
        self._work = work
        self._workers = workers
        self._timing = timing
        self._settle = settle
        self._backoff = backoff
        #: When each waiting key is due, on the clock. `_heap` orders those that are not worked on; its entries that
        #: differ from `_due` are outdated.
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._busy: set[str] = set()
        self._failures: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._stopping = False

    def __len__(self) -> int:
        """Return the number of keys that wait or are worked on."""
        return len(self._due.keys() | self._busy)

    def put(self, key: str) -> None:
        """Queue a key that has changed."""
        self.put_later(key, self._settle)

    def put_later(self, key: str, seconds: float) -> None:
        """Queue a key for `seconds` from now, unless it is due earlier already."""
        due = self._timing.clock() + seconds
        if key not in self._due or due < self._due[key]:
            self._due[key] = due
            if key not in self._busy:
                heapq.heappush(self._heap, (due, key))
                self._changed.set()

    def stop(self) -> None:
        """Make `run` return once the current work is done; waiting keys remain."""
        self._stopping = True
        self._changed.set()

    async def run(self) -> None:
        """Work until `stop` is called, or until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while not self._stopping:
                self._changed.clear()
                while len(self._busy) < self._workers and (key := self._take()) is not None:
                    self._busy.add(key)
                    tasks.create_task(self._one(key))
                await self._wait()

    def _take(self) -> str | None:
        """Return the key that has been due for longest among those that are not worked on."""
        now = self._timing.clock()
        while self._heap and self._heap[0][0] <= now:
            due, key = heapq.heappop(self._heap)
            if self._due.get(key) == due and key not in self._busy:
                del self._due[key]
                return key
        return None

    async def _wait(self) -> None:
        """Wait for a change, or until the next key is due and a worker is free."""
        left = None
        if self._heap and len(self._busy) < self._workers:
            left = self._heap[0][0] - self._timing.clock()
            if left <= 0.0:
                return
        try:
            async with asyncio.timeout(left):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _one(self, key: str) -> None:
        try:
            done = await self._work(key)
        finally:
            self._busy.discard(key)
            if key in self._due:
                heapq.heappush(self._heap, (self._due[key], key))
            self._changed.set()
        if done:
            self._failures.pop(key, None)
            return
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.put_later(key, self._backoff.delay(failures, self._timing.rng))
