"""Those who wait for a reflector: for a list that begins after they asked, or for a version of the collection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from math import inf
from typing import Final, NamedTuple

from agent_scheduler.kube.retry import Clock
from agent_scheduler.kube.watch_events import is_older

#: Seconds that lists may go on failing at a takeover before it is given up.
RENEWAL_PATIENCE: Final = 30.0


class NotListed(Exception):
    """The view could not be taken anew in time. The message says why."""


class InputsRefused(Exception):
    """The API server refuses to list what this process decides by. The message names it, who reads it, and the right
    that is lacking."""


class RelistRequest(NamedTuple):
    """A caller that waits for a list, and from when on a list that fails raises there, on the reflector's clock."""

    until: float
    listed: asyncio.Future[None]


class Waiters:
    """Owner of who waits for one reflector."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._requests: list[RelistRequest] = []
        #: Those who wait until all up to a version has been delivered.
        self._reaching: list[tuple[str, asyncio.Future[None]]] = []

    @property
    def is_list_requested(self) -> bool:
        return bool(self._requests)

    @property
    def patience(self) -> float:
        """Seconds until a list that fails raises at the first of those who wait for one."""
        return min((each.until for each in self._requests), default=inf) - self._clock()

    def request(self, patience: float) -> asyncio.Future[None]:
        """Done with the next list that begins. After `patience` seconds one that fails raises NotListed."""
        renewed = asyncio.get_running_loop().create_future()
        self._requests.append(RelistRequest(self._clock() + patience, renewed))
        return renewed

    def take_requests(self) -> list[RelistRequest]:
        """Those who have asked so far: a list begins."""
        asked, self._requests = self._requests, []
        return asked

    def failed(self, asked: Iterable[RelistRequest], error: Exception) -> None:
        """The list that these have waited for failed: they go on waiting, or, if it was for too long, get NotListed."""
        now = self._clock()
        for each in asked:
            if each.listed.done():
                continue
            if now >= each.until:
                each.listed.set_exception(NotListed(str(error)))
            else:
                self._requests.append(each)

    def wait_for(self, version: str) -> asyncio.Future[None]:
        """Done when all that happened up to `version` has been delivered."""
        reached = asyncio.get_running_loop().create_future()
        self._reaching.append((version, reached))
        return reached

    def delivered(self, version: str) -> None:
        """All up to `version` has been delivered."""
        left = [each for each in self._reaching if is_older(version, each[0])]
        answer(future for wanted, future in self._reaching if not is_older(version, wanted))
        self._reaching = left


def answer(asked: Iterable[asyncio.Future[None]]) -> None:
    for each in asked:
        if not each.done():
            each.set_result(None)
