"""A queue of keyed work, such as calls to the API server: the newest per key, with limited concurrency, and delays.

The idea is KEP-5229's dispatcher: a newer call for an object replaces a waiting one, and two calls for the same
object never run at once. Unlike there, each kind of call has its own dispatcher and budget, because a common one let
status patches starve binds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Final, Generic, TypeVar

from kube_client.errors import StoreWentBack
from kube_client.logs import LimitedLog, get_logger
from kube_client.pace import Gate
from kube_client.retry import REAL, Backoff, Timing

_log = get_logger(__name__)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: Carries out a call, or resumes one whose first request did not settle it; False as for `send`.
Rest = Callable[[], Awaitable[bool | None]]
_BACKOFF: Final = Backoff(initial=0.1, cap=30.0)

#: Called once at the end of a call, with None or with what resumes it.
Ended = Callable[[Rest | None], None]


class Dispatcher(Generic[K, V]):
    """Calls `send(key, call)` for each `put`, with limited concurrency, in order of arrival.

    `capacity` limits the number of waiting keys. If `send` returns False, the call is put again after `backoff`, unless
    another is put for the key meanwhile. So it is after an exception, which is logged: it concerns only that key.
    Only `StoreWentBack` ends `run`.

    `start(key, call, ended)` is called first and returns whether it sent the call's first request immediately,
    without the task that `send` needs. `ended` is called later, never before `start` has returned. If `start` raises,
    `send` is used.

    `pace` decides when a call may begin; None means immediately.
    """

    def __init__(
        self,
        send: Callable[[K, V], Awaitable[bool | None]],
        *,
        concurrency: int,
        capacity: int | None = None,
        start: Callable[[K, V, Ended], bool] = lambda _key, _call, _ended: False,
        pace: Gate | None = None,
        backoff: Backoff = _BACKOFF,
        timing: Timing = REAL,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        self._send = send
        self._start = start
        self._concurrency = concurrency
        self._capacity = capacity
        self._pace = pace
        self._backoff = backoff
        self._rng = timing.rng
        self._limited_log = LimitedLog(_log, clock=timing.clock)
        # Owned by this class. Invariant: a key of `_waiting` is in `_ready` or in `_busy`; removing it from `_busy`
        # adds it to `_ready`. `_ready` may have duplicates and obsolete keys, which `_waiting` decides. `_busy` has
        # at most `concurrency` keys, and fewer only if no key is ready or `pace` does not admit one.
        self._waiting: dict[K, V] = {}
        self._busy: set[K] = set()
        #: Calls of busy keys whose task has not started. If `run` is cancelled, the next `run` sends them.
        self._unbegun: dict[K, V] = {}
        self._ready: deque[K] = deque()
        #: Calls that are not due, and their timers. Their keys are not in `_waiting`.
        self._later: dict[K, V] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        #: The number of consecutive failures of each key.
        self._failures: dict[K, int] = {}
        #: The task group of `run`; None while it is not running.
        self._tasks: asyncio.TaskGroup | None = None
        #: Whether a call of `_go_on` is scheduled on the loop.
        self._called = False
        self._quiet = asyncio.Event()
        self._stopped = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of keys that wait or are being sent."""
        return len(self._waiting.keys() | self._busy)

    @property
    def unfinished(self) -> int:
        """The number of keys that wait, are being sent, or are not due."""
        return len(self._waiting.keys() | self._busy | self._later.keys())

    def has_room(self) -> bool:
        """Return whether a call for a new key would be accepted."""
        return self._capacity is None or len(self._waiting) < self._capacity

    def put(self, key: K, call: V) -> bool:
        """Make `call` the next one for `key`, replacing an older one. Return false if there is no room."""
        if self._timers:
            self._forget_later(key)
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

    def put_later(self, key: K, call: V, seconds: float) -> None:
        """Put `call` after `seconds`, or when an older one that it replaces is due, if that is earlier."""
        if seconds <= 0.0 or key in self._waiting:
            self.put(key, call)
            return
        loop = asyncio.get_running_loop()
        due, timer = loop.time() + seconds, self._timers.get(key)
        self._later[key] = call
        if timer is None or due < timer.when():
            if timer is not None:
                timer.cancel()
            self._timers[key] = loop.call_at(due, self._fall_due, key)

    def _fall_due(self, key: K) -> None:
        self.put(key, self._later[key])

    def _forget_later(self, key: K) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
            del self._later[key]

    def waiting(self, key: K) -> bool:
        """Return whether a call for `key` is waiting, so that a call that is being repeated can be abandoned."""
        return key in self._waiting

    def discard(self, key: K) -> None:
        """Drop the waiting call for `key`, if any; a call that is being sent continues."""
        self._waiting.pop(key, None)
        self._forget_later(key)
        self._failures.pop(key, None)

    def stop(self) -> None:
        """Make `run` return once the current calls have ended; waiting ones remain."""
        self._tasks = None
        self._stopped.set()

    async def run(self) -> None:
        """Send until cancelled, or until `stop` is called. Calls that are not due at the end are dropped."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = None if self._stopped.is_set() else tasks
            try:
                for key, call in self._unbegun.items():
                    self._busy.discard(key)
                    self._waiting.setdefault(key, call)
                self._ready.extendleft(reversed(self._unbegun))
                self._unbegun.clear()
                self._call()
                await self._stopped.wait()
            finally:
                self._tasks = None
                for key in list(self._timers):
                    self._forget_later(key)

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
                started = self._start(key, call, partial(self._ended, key, call))
            except Exception:
                # Nothing was sent. `send` will fail in the same way and report it.
                started = False
            if not started:
                self._unbegun[key] = call
                self._tasks.create_task(self._carry_out(key, call, partial(self._send, key, call)))
        if not self._busy:
            self._quiet.set()

    def _ended(self, key: K, call: V, rest: Rest | None) -> None:
        if rest is not None and self._tasks is not None:
            self._tasks.create_task(self._carry_out(key, call, rest))
            return
        if rest is None and self._failures:
            self._failures.pop(key, None)
        self._over(key)

    async def _carry_out(self, key: K, call: V, work: Rest) -> None:
        self._unbegun.pop(key, None)
        try:
            if await work() is False:
                self._put_again(key, call)
            elif self._failures:
                self._failures.pop(key, None)
        except StoreWentBack:
            self._tasks = None
            raise
        except Exception as error:
            kind = type(error).__name__
            self._limited_log.error("call failed", kind, key=str(key), problem=f"{kind}: {error}", exc_info=error)
            self._put_again(key, call)
        except BaseException:
            # Stop together with `run`: no further call begins.
            self._tasks = None
            raise
        finally:
            self._over(key)

    def _put_again(self, key: K, call: V) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        if key not in self._waiting:
            delay = self._backoff.delay(failures, self._rng)
            self.put_later(key, self._later.get(key, call), delay)

    def _over(self, key: K) -> None:
        self._busy.discard(key)
        if key in self._waiting:
            self._ready.append(key)
        self._go_on()
