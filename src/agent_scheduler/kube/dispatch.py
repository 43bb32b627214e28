"""Calls to the API server that nobody waits for: the newest one of each object, a bounded number at a time.

The idea is KEP-5229's dispatcher: while a call for an object waits, a newer one replaces it, and two calls for the
same object never run at once. Unlike there, each kind of call has a dispatcher and a budget of its own, because one
for all let status patches starve binds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Dispatcher(Generic[K, V]):
    """Calls `send(key, call)` for what `put` is given, `concurrency` at a time, first come first served.

    `capacity` bounds the keys that wait. `send` deals with its failures itself; what it raises ends `run`.
    """

    def __init__(
        self,
        send: Callable[[K, V], Awaitable[None]],
        *,
        concurrency: int,
        capacity: int | None = None,
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
        self._ready: deque[K] = deque()
        #: What `run` sends in; None while nobody is in it.
        self._tasks: asyncio.TaskGroup | None = None
        # Tasks that send. Invariant: at most `concurrency`, and never fewer when the loop waits while a key is ready.
        self._senders = 0
        self._quiet = asyncio.Event()

    def __len__(self) -> int:
        """Keys that wait or are being sent."""
        return len(self._waiting.keys() | self._busy)

    def has_room(self) -> bool:
        """Whether a call for a key that does not wait yet would be taken."""
        return self._capacity is None or len(self._waiting) < self._capacity

    def put(self, key: K, call: V) -> bool:
        """Makes `call` the next one for `key`, in the place of an older one. False if there is no room."""
        if key in self._waiting:
            self._waiting[key] = call
            return True
        if not self.has_room():
            return False
        self._waiting[key] = call
        if key not in self._busy:
            self._ready.append(key)
            if self._senders < self._concurrency:
                self._start()
        return True

    def waiting(self, key: K) -> bool:
        """Whether a call for `key` waits, so that one that is being repeated may give way to it."""
        return key in self._waiting

    def discard(self, key: K) -> None:
        """Drops the call for `key` that waits, if any; one that is being sent goes on."""
        self._waiting.pop(key, None)

    async def run(self) -> None:
        """Sends until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks, self._senders = tasks, 0
            try:
                for _ in range(min(len(self._ready), self._concurrency)):
                    self._start()
                await asyncio.get_running_loop().create_future()
            finally:
                self._tasks = None

    async def drain(self, timeout: float) -> int:  # noqa: ASYNC109 - a bound for the shutdown, given by its owner
        """Waits until nothing is left, at most `timeout` seconds; gives what is left. `run` must be running."""
        try:
            async with asyncio.timeout(timeout):
                while len(self):
                    self._quiet.clear()
                    await self._quiet.wait()
        except TimeoutError:
            pass
        return len(self)

    def _take(self) -> tuple[K, V] | None:
        """What is to be sent next."""
        while self._ready:
            key = self._ready.popleft()
            if key not in self._busy and key in self._waiting:
                return key, self._waiting.pop(key)
        return None

    def _start(self) -> None:
        """One more sender. It takes its call when it runs, not before, so that a newer one said in the same breath
        still replaces it."""
        if self._tasks is not None:
            self._senders += 1
            self._tasks.create_task(self._sender())

    async def _sender(self) -> None:
        """Sends until nothing is ready: a task waiting for more would have to be woken, which costs as much."""
        try:
            while (taken := self._take()) is not None:
                await self._one(*taken)
        finally:
            self._senders -= 1
            if not self._busy:
                self._quiet.set()

    async def _one(self, key: K, call: V) -> None:
        self._busy.add(key)
        try:
            await self._send(key, call)
        finally:
            self._busy.discard(key)
            if key in self._waiting:
                self._ready.append(key)
