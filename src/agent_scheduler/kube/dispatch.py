"""Calls to the API server that nobody waits for: the newest one of each object, a bounded number at a time.

The idea is KEP-5229's dispatcher: while a call for an object waits, a newer one replaces it, and two calls for the
same object never run at once. Unlike there, each kind of call has a dispatcher and a budget of its own, because one
for all let status patches starve binds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Dispatcher(Generic[K, V]):
    """Calls `send(key, call)` for what `put` is given, `concurrency` at a time, first come first served.

    `capacity` bounds the keys that wait. `send` deals with its failures itself; what it raises ends `run`.
    """

    def __init__(
        self, send: Callable[[K, V], Awaitable[None]], *, concurrency: int, capacity: int | None = None
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        self._send = send
        self._concurrency = concurrency
        self._capacity = capacity
        # Owner: this class. Invariant: a key of `_waiting` is either in `_ready` or in `_busy`, and whoever takes it
        # out of `_busy` puts it into `_ready`. `_ready` may hold a key twice or in vain; `_waiting` decides.
        self._waiting: dict[K, V] = {}
        self._busy: set[K] = set()
        self._ready: asyncio.Queue[K] = asyncio.Queue()

    def __len__(self) -> int:
        """Keys that wait or are being sent."""
        return len(self._waiting.keys() | self._busy)

    def put(self, key: K, call: V) -> bool:
        """Makes `call` the next one for `key`, in the place of an older one. False if there is no room."""
        if key in self._waiting:
            self._waiting[key] = call
            return True
        if self._capacity is not None and len(self._waiting) >= self._capacity:
            return False
        self._waiting[key] = call
        if key not in self._busy:
            self._ready.put_nowait(key)
        return True

    def waiting(self, key: K) -> bool:
        """Whether a call for `key` waits, so that one that is being repeated may give way to it."""
        return key in self._waiting

    def discard(self, key: K) -> None:
        """Drops the call for `key` that waits, if any; one that is being sent goes on."""
        self._waiting.pop(key, None)

    async def run(self) -> None:
        """Sends until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._concurrency):
                group.create_task(self._worker())

    async def drain(self, timeout: float) -> int:  # noqa: ASYNC109 - a bound for the shutdown, given by its owner
        """Waits until nothing is left, at most `timeout` seconds; gives what is left. `run` must be running."""
        try:
            async with asyncio.timeout(timeout):
                await self._ready.join()
        except TimeoutError:
            pass
        return len(self)

    async def _worker(self) -> None:
        while True:
            key = await self._ready.get()
            try:
                if key not in self._busy and key in self._waiting:
                    await self._one(key, self._waiting.pop(key))
            finally:
                self._ready.task_done()

    async def _one(self, key: K, call: V) -> None:
        self._busy.add(key)
        try:
            await self._send(key, call)
        finally:
            self._busy.discard(key)
            if key in self._waiting:
                self._ready.put_nowait(key)
