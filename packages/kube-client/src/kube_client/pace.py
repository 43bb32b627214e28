"""Paces requests that give way to more urgent ones.

Requests that are decided all at once, such as by a session, would be sent all at once. An API server answers in order
of arrival, so they would delay the next urgent request. While urgent requests occur, the others are sent in small
portions, of all kinds together (docs/decisions/0041).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final, Protocol

from kube_client.budget import Budget

#: Seconds between two portions.
TICK: Final = 0.001
#: The share of all waiting requests in a portion, but at least one: any number is mostly sent within some seconds.
PORTION: Final = 0.001
#: Seconds after the last urgent request during which others are paced.
_OTHERS_COME: Final = 1.0
#: Seconds between two checks of a budget. uvloop rounds times to milliseconds, and a loop may run a timer early.
_SHORTEST_WAIT: Final = 0.001


class Gate(Protocol):
    """Decides when a request may begin."""

    def admits(self, go_on: Callable[[], object], waiting: int) -> bool:
        """Return whether one of `waiting` requests may begin now. If not, `go_on` is called when to try again."""
        ...


class WithinBudget:
    """Admits the requests of one sender at the rate of a budget, and at a pace, if any. It does not count them.

    Without it, each request beyond the rate waits in a task of its own. Owns a timer while requests wait for the rate.
    """

    def __init__(self, budget: Budget, pace: Gate | None) -> None:
        self._budget = budget
        self._pace = pace
        self._timer: asyncio.TimerHandle | None = None

    def admits(self, go_on: Callable[[], object], waiting: int) -> bool:
        """See `Gate`."""
        wait = self._budget.wait()
        if wait <= 0.0:
            return self._pace is None or self._pace.admits(go_on, waiting)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(wait, _SHORTEST_WAIT), self._on_timer, go_on)
        return False

    def _on_timer(self, go_on: Callable[[], object]) -> None:
        self._timer = None
        go_on()


class Pace:
    """Decides when a request may begin. Owns the waiting senders, and a timer while there are any.

    Invariant: the timer runs while a sender waits.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: The time of the last urgent request. Set by its sender, which need not ask.
        self.others_at = -math.inf
        #: The waiting senders in order of arrival, with their numbers of requests.
        self._waiting: dict[Callable[[], object], int] = {}
        #: The number of requests that may begin before the timer fires.
        self._left = 1
        self._timer: asyncio.TimerHandle | None = None

    @property
    def others_come(self) -> bool:
        return self._clock() < self.others_at + _OTHERS_COME

    def admits(self, go_on: Callable[[], object], waiting: int) -> bool:
        """Return whether one of `waiting` requests may begin now. If not, `go_on` is called when to try again."""
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
            # A sender with further requests is appended again, after those that were not called yet.
            del self._waiting[go_on]
            go_on()
