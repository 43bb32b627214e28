"""Callers that wait for a reflector: for a list that begins after their request, or for a version of the collection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from math import inf
from typing import Final, NamedTuple

from kube_client.retry import Clock
from kube_client.watch_events import is_older

#: Seconds for which lists may keep failing at a takeover before it is given up.
RENEWAL_PATIENCE: Final = 30.0


class NotListed(Exception):
    """The view could not be renewed in time. The message has the reason."""


class InputsRefused(Exception):
    """The API server refuses to list an input of this process's decisions.

    The message names the input, the user and the missing permission.
    """


class RelistRequest(NamedTuple):
    """A caller that waits for a list. From `until` on the reflector's clock, a failing list raises in the caller."""

    until: float
    listed: asyncio.Future[None]


class Waiters:
    """Owns the callers that wait for one reflector."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._requests: list[RelistRequest] = []
        #: Futures that wait until everything up to a version has been delivered.
        self._reaching: list[tuple[str, asyncio.Future[None]]] = []

    @property
    def is_list_requested(self) -> bool:
        return bool(self._requests)

    @property
    def patience(self) -> float:
        """The seconds until a failing list raises in the most impatient waiting caller."""
        return min((each.until for each in self._requests), default=inf) - self._clock()

    def request(self, patience: float) -> asyncio.Future[None]:
        """Return a future that is done with the next list. After `patience` seconds a failing list raises NotListed."""
        renewed = asyncio.get_running_loop().create_future()
        self._requests.append(RelistRequest(self._clock() + patience, renewed))
        return renewed

    def take_requests(self) -> list[RelistRequest]:
        """Remove and return the requests so far, because a list begins."""
        asked, self._requests = self._requests, []
        return asked

    def failed(self, asked: Iterable[RelistRequest], error: Exception) -> None:
        """Handle a failed list: let its waiting requests wait on, or fail with NotListed those that waited too long."""
        now = self._clock()
        for each in asked:
            if each.listed.done():
                continue
            if now >= each.until:
                each.listed.set_exception(NotListed(str(error)))
            else:
                self._requests.append(each)

    def wait_for(self, version: str) -> asyncio.Future[None]:
        """Return a future that is done when everything up to `version` has been delivered."""
        reached = asyncio.get_running_loop().create_future()
        self._reaching.append((version, reached))
        return reached

    def delivered(self, version: str) -> None:
        """Complete the futures of `wait_for` up to `version`."""
        left = [each for each in self._reaching if is_older(version, each[0])]
        answer(future for wanted, future in self._reaching if not is_older(version, wanted))
        self._reaching = left


def answer(asked: Iterable[asyncio.Future[None]]) -> None:
    for each in asked:
        if not each.done():
            each.set_result(None)
