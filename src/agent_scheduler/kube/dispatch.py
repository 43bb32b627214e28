"""Calls to the API server that nobody waits for: the newest one of each object, a bounded number at a time.

The idea is KEP-5229's dispatcher: while a call for an object waits, a newer one replaces it, and two calls for the
same object never run at once. Unlike there, each kind of call has a dispatcher and a budget of its own, because one
for all let status patches starve binds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Generic, TypeVar

from agent_scheduler.kube.pace import Pace

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: Carries out a call, or goes on with one whose first request did not settle it.
Rest = Callable[[], Awaitable[None]]
#: Is told once that a call has ended, or what goes on with it.
Ended = Callable[[Rest | None], None]


class Dispatcher(Generic[K, V]):
    """Calls `send(key, call)` for what `put` is given, `concurrency` at a time, first come first served.

    `capacity` bounds the keys that wait. `send` deals with its failures itself; what it raises ends `run`.

    `start(key, call, ended)` is asked before: whether it sends the first request of a call at once, without the task
    that `send` costs. `ended` is told later, never before `start` has returned. What it raises is left to `send`.

    `pace` says when a call may begin; None: at once.
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
        # Owner: this class. Invariant: a key of `_waiting` is either in `_ready` or in `_busy`, and whoever takes it
        # out of `_busy` puts it into `_ready`. `_ready` may hold a key twice or in vain; `_waiting` decides. `_busy`
        # has at most `concurrency`, and never fewer when the loop waits while a key is ready and `pace` admits it.
        self._waiting: dict[K, V] = {}
        self._busy: set[K] = set()
        #: Those of `_busy` whose task has not begun, with their calls: a run that is cancelled leaves them to the next.
        self._unbegun: dict[K, V] = {}
        self._ready: deque[K] = deque()
        #: What `run` sends in; None while nobody is in it.
        self._tasks: asyncio.TaskGroup | None = None
        #: Whether the loop is about to call `_go_on`.
        self._called = False
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
            self._call()
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

    def _call(self) -> None:
        """A call is taken when the loop comes by, not before, so that a newer one said in the same breath still
        replaces it."""
        if self._tasks is not None and not self._called and len(self._busy) < self._concurrency:
            self._called = True
            asyncio.get_running_loop().call_soon(self._on_called)

    def _on_called(self) -> None:
        self._called = False
        self._go_on()

    def _go_on(self) -> None:
        """Begins as many calls as may be under way."""
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
                # Nothing was sent. The other way fails alike, and is there to report it.
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
            # With `run`: what ends from now on begins nothing.
            self._tasks = None
            raise
        finally:
            self._over(key)

    def _over(self, key: K) -> None:
        self._busy.discard(key)
        if key in self._waiting:
            self._ready.append(key)
        self._go_on()
