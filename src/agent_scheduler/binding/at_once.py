"""Has jobs begun without a task, so many at a time, and hands over those that cannot be.

A job cannot be begun where no connection is idle. Then a task, which opens one, is the way; but connections become idle
all the time, so not all jobs that wait are handed to tasks at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

JobT = TypeVar("JobT")

#: Seconds in which a connection is opened, mostly.
_CONNECTS: Final = 0.02


class AtOnce(Generic[JobT]):
    """Owner of the jobs that are not begun, and of how many are under way."""

    def __init__(
        self, begin: Callable[[JobT], bool], hand_over: Callable[[JobT], None], *, at_most: int
    ) -> None:
        """`begin` says whether it has begun the job, of whose end `over` is told; else it is handed over."""
        self._begin = begin
        self._hand_over = hand_over
        self._at_most = at_most
        self._ready: deque[JobT] = deque()
        self._under_way = 0
        #: Jobs that were handed over just now.
        self._connecting = 0
        #: Set between `start` and `stop`.
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def runs(self) -> bool:
        return self._loop is not None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begin_ready()

    def stop(self) -> deque[JobT]:
        """Begin nothing more. The jobs that were not begun are the caller's."""
        self._loop = None
        ready, self._ready = self._ready, deque()
        return ready

    def add(self, job: JobT) -> None:
        self._ready.append(job)
        self._begin_ready()

    def over(self) -> None:
        """A job that was begun has ended, or is gone on with otherwise."""
        self._under_way -= 1
        self._begin_ready()

    def _begin_ready(self) -> None:
        while self._ready and self._loop is not None and self._under_way + self._connecting < self._at_most:
            job = self._ready.popleft()
            if self._begin(job):
                self._under_way += 1
            else:
                self._connecting += 1
                self._loop.call_later(_CONNECTS, self._connected)
                self._hand_over(job)

    def _connected(self) -> None:
        self._connecting -= 1
        self._begin_ready()


async def raising(error: Exception) -> None:
    """For what was raised in a call that nobody awaits: as a task, it ends the group that it is in."""
    raise error
