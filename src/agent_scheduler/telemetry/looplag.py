"""How late the event loop is: the one number that says that something blocks it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class LoopLag:
    """Sets a timer again and again and reports how late it ran, in seconds.

    What keeps the loop for longer than two `interval`s is seen whenever it happens, and missed by one of them at most:
    it is told that much too short.
    Owner of its one timer, between `start` and `stop`.
    """

    def __init__(
        self,
        observe: Callable[[float], None],
        *,
        loop: asyncio.AbstractEventLoop,
        interval: float = 0.02,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observe = observe
        self._loop = loop
        self._interval = interval
        # Not the loop's own: uvloop reads its clock once an iteration, in milliseconds.
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        if self._timer is None:
            self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._due = self._clock() + self._interval
        self._timer = self._loop.call_later(self._interval, self._tick)

    def _tick(self) -> None:
        # The loop's clock rounds, so a timer may run a moment early.
        self._observe(max(0.0, self._clock() - self._due))
        self._arm()
