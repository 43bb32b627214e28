"""Requests that make way for others which are in more of a hurry.

What is decided all at once, such as by a session, would be sent all at once, and an API server answers in the order in
which it was asked: whatever waits there, of however many kinds, keeps the next request of the others waiting. So as
long as others come, it is begun a portion at a time, of all kinds together (docs/decisions/0041).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

#: Seconds between two portions.
TICK: Final = 0.001
#: What part of all that waits is a portion, if that is more than one request: however much it is, most of it is begun
#: within some seconds.
PORTION: Final = 0.001
#: Others come until none has for so many seconds.
_OTHERS_COME: Final = 1.0


class Pace:
    """Says when a request may be begun. Owner of those who wait for that, and of a timer while somebody does.

    Invariant: while anybody waits the timer runs.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: When one of the others was last begun, by the clock. Set by who begins them, which need not ask.
        self.others_at = -math.inf
        #: Who waits, in the order of their coming, and with how many requests.
        self._waiting: dict[Callable[[], object], int] = {}
        #: Requests that may be begun before the timer has run.
        self._left = 1
        self._timer: asyncio.TimerHandle | None = None

    @property
    def others_come(self) -> bool:
        return self._clock() < self.others_at + _OTHERS_COME

    def admits(self, go_on: Callable[[], object], waiting: int) -> bool:
        """Whether one of the `waiting` requests may be begun now. If not, `go_on` is called when to ask again."""
        if not self.others_come:
            return True
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK, self._tick)
        if self._left > 0:
            self._left -= 1
            return True
        self._waiting[go_on] = waiting
        return False

    def _tick(self) -> None:
        self._timer = None
        self._left = max(1, math.ceil(sum(self._waiting.values()) * PORTION))
        for go_on in list(self._waiting):
            if self._left <= 0:
                break
            # Who has more than it may begin gets in line again, behind those who were not asked yet.
            del self._waiting[go_on]
            go_on()
