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

    `begin(key, call)` sends a call at once and without a task, if it can: `ended` is to be called when it is over, and
    not before `begin` has returned. False: nothing was sent, and `send` is the way.
    """

    def __init__(
        self,
        send: Callable[[K, V], Awaitable[None]],
        *,
        concurrency: int,
        capacity: int | None = None,
        begin: Callable[[K, V], bool] = lambda _key, _call: False,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        self._send = send
        self._begin = begin
        self._concurrency = concurrency
        self._capacity = capacity
        # Owner: this class. Invariant: a key of `_waiting` is either in `_ready` or in `_busy`, and whoever takes it
        # out of `_busy` puts it into `_ready`. `_ready` may hold a key twice or in vain; `_waiting` decides.
        self._waiting: dict[K, V] = {}
        self._busy: set[K] = set()
        self._ready: deque[K] = deque()
        #: What `run` sends in; None while nobody is in it.
        self._tasks: asyncio.TaskGroup | None = None
        # Tasks that send, and calls that were begun. Invariant: together at most `concurrency`, and never fewer when
        # the loop waits while a key is ready.
        self._senders = 0
        self._begun = 0
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
        if key in self._busy:
            self._waiting[key] = call
        elif self._ready or not self._is_free() or not self._begins(key, call):
            self._waiting[key] = call
            self._ready.append(key)
            if self._is_free():
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
                for _ in range(min(len(self._ready), self._concurrency - self._begun)):
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

    def ended(self, key: K, again: V | None = None) -> None:
        """The call that was begun for `key` is over. `again` is what to `send` for it now, if nothing newer waits."""
        self._begun -= 1
        self._busy.discard(key)
        if key in self._waiting:
            self._ready.append(key)
        elif again is not None:
            self._come_back(key, again)
        taken = None if self._tasks is None else self._take()
        if taken is None:
            self._rest()
        elif not self._begins(*taken):
            self._come_back(*taken)
            self._start()

    def _come_back(self, key: K, call: V) -> None:
        self._waiting[key] = call
        self._ready.appendleft(key)

    def _take(self) -> tuple[K, V] | None:
        """What is to be sent next."""
        while self._ready:
            key = self._ready.popleft()
            if key not in self._busy and key in self._waiting:
                return key, self._waiting.pop(key)
        return None

    def _is_free(self) -> bool:
        """Whether one more may be sent now."""
        return self._tasks is not None and self._senders + self._begun < self._concurrency

    def _begins(self, key: K, call: V) -> bool:
        try:
            begun = self._begin(key, call)
        except Exception:
            # Nothing was sent. `send` fails alike, and ends the run with it.
            return False
        if begun:
            self._begun += 1
            self._busy.add(key)
        return begun

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
                if self._begins(*taken):
                    return
                await self._one(*taken)
        finally:
            self._senders -= 1
            self._rest()

    async def _one(self, key: K, call: V) -> None:
        self._busy.add(key)
        try:
            await self._send(key, call)
        finally:
            self._busy.discard(key)
            if key in self._waiting:
                self._ready.append(key)

    def _rest(self) -> None:
        if not self._busy:
            self._quiet.set()
