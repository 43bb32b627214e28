"""Sends calls to the API server in the background: the newest one per object, with limited concurrency.

The idea is KEP-5229's dispatcher: a newer call for an object replaces a waiting one, and two calls for the same
object never run at once. Unlike there, each kind of call has its own dispatcher and budget, because a common one let
status patches starve binds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Generic, TypeVar

from kube_client.pace import Pace

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: Carries out a call, or resumes one whose first request did not settle it.
Rest = Callable[[], Awaitable[None]]
#: Called once at the end of a call, with None or with what resumes it.
Ended = Callable[[Rest | None], None]


class Dispatcher(Generic[K, V]):
    """Calls `send(key, call)` for each `put`, with limited concurrency, in order of arrival.

    `capacity` limits the number of waiting keys. `send` handles its failures itself; an exception from it ends `run`.

    `start(key, call, ended)` is called first and returns whether it sent the call's first request immediately,
    without the task that `send` needs. `ended` is called later, never before `start` has returned. If `start` raises,
    `send` is used.

    `pace` decides when a call may begin; None means immediately.
    """

    def __init__(
        self,
        send: Callable[[K, V], Awaitable[None]],
        *,
        concurrency: int,
        capacity: int | None = None,
        start: Callable[[K, V, Ended], bool] = lambda _key, _call, _ended: False,
        pace: Pace | None = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        self._send = send
        self._start = start
        self._concurrency = concurrency
        self._capacity = capacity
        self._pace = pace
        # Owned by this class. Invariant: a key of `_waiting` is in `_ready` or in `_busy`; removing it from `_busy`
        # adds it to `_ready`. `_ready` may have duplicates and obsolete keys, which `_waiting` decides. `_busy` has
        # at most `concurrency` keys, and fewer only if no key is ready or `pace` does not admit one.
        self._waiting: dict[K, V] = {}
        self._busy: set[K] = set()
        #: Calls of busy keys whose task has not started. If `run` is cancelled, the next `run` sends them.
        self._unbegun: dict[K, V] = {}
        self._ready: deque[K] = deque()
        #: The task group of `run`; None while it is not running.
        self._tasks: asyncio.TaskGroup | None = None
        #: Whether a call of `_go_on` is scheduled on the loop.
        self._called = False
        self._quiet = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of keys that wait or are being sent."""
        return len(self._waiting.keys() | self._busy)

    def has_room(self) -> bool:
        """Return whether a call for a new key would be accepted."""
        return self._capacity is None or len(self._waiting) < self._capacity

    def put(self, key: K, call: V) -> bool:
        """Make `call` the next one for `key`, replacing an older one. Return false if there is no room."""
        if key in self._waiting:
            self._waiting[key] = call
            return True
        if not self.has_room():
            return False
        self._waiting[key] = call
        if key not in self._busy:
            self._ready.append(key)
            self._call()
        return True

    def waiting(self, key: K) -> bool:
        """Return whether a call for `key` is waiting, so that a call that is being repeated can be abandoned."""
        return key in self._waiting

    def discard(self, key: K) -> None:
        """Drop the waiting call for `key`, if any; a call that is being sent continues."""
        self._waiting.pop(key, None)

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                for key, call in self._unbegun.items():
                    self._busy.discard(key)
                    self._waiting.setdefault(key, call)
                self._ready.extendleft(reversed(self._unbegun))
                self._unbegun.clear()
                self._call()
                await asyncio.get_running_loop().create_future()
            finally:
                self._tasks = None

    async def drain(self, timeout: float) -> int:  # noqa: ASYNC109 - a bound for the shutdown, given by its owner
        """Wait up to `timeout` seconds until no call is left; return the number that is left. `run` must be running."""
        try:
            async with asyncio.timeout(timeout):
                while len(self):
                    self._quiet.clear()
                    await self._quiet.wait()
        except TimeoutError:
            pass
        return len(self)

    def _take(self) -> tuple[K, V] | None:
        """Remove and return the next call."""
        while self._ready:
            key = self._ready.popleft()
            if key not in self._busy and key in self._waiting:
                return key, self._waiting.pop(key)
        return None

    def _call(self) -> None:
        """Schedule `_go_on`. The delay lets a newer call from the same callback replace an older one."""
        if self._tasks is not None and not self._called and len(self._busy) < self._concurrency:
            self._called = True
            asyncio.get_running_loop().call_soon(self._on_called)

    def _on_called(self) -> None:
        self._called = False
        self._go_on()

    def _go_on(self) -> None:
        """Begin calls up to the limits."""
        while (
            self._tasks is not None
            and len(self._busy) < self._concurrency
            and self._waiting
            and (self._pace is None or self._pace.admits(self._go_on, len(self._waiting)))
            and (taken := self._take()) is not None
        ):
            key, call = taken
            self._busy.add(key)
            try:
                started = self._start(key, call, partial(self._ended, key))
            except Exception:
                # Nothing was sent. `send` will fail in the same way and report it.
                started = False
            if not started:
                self._unbegun[key] = call
                self._tasks.create_task(self._carry_out(key, partial(self._send, key, call)))
        if not self._busy:
            self._quiet.set()

    def _ended(self, key: K, rest: Rest | None) -> None:
        if rest is not None and self._tasks is not None:
            self._tasks.create_task(self._carry_out(key, rest))
        else:
            self._over(key)

    async def _carry_out(self, key: K, work: Rest) -> None:
        self._unbegun.pop(key, None)
        try:
            await work()
        except BaseException:
            # Stop together with `run`: no further call begins.
            self._tasks = None
            raise
        finally:
            self._over(key)

    def _over(self, key: K) -> None:
        self._busy.discard(key)
        if key in self._waiting:
            self._ready.append(key)
        self._go_on()
