"""A story that is told in lines: what is seen of a cluster, whenever it has changed, until it is as the story goes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final, Generic, TypeVar

from bench.harness.processes import ProcessError

T = TypeVar("T")

#: Between two looks, and for how long one that has to come is waited for, in seconds.
LOOK: Final = 0.2
_PATIENCE: Final = 30.0


class Teller(Generic[T]):
    """`say` prints a text, `look` asks the cluster, and `shown` makes lines of what it answers."""

    def __init__(
        self,
        say: Callable[[str], object],
        look: Callable[[], Awaitable[T]],
        shown: Callable[[T], str],
    ) -> None:
        self._say = say
        self._look = look
        self._shown = shown
        self._began = monotonic()
        self._last: T | None = None

    def tell(self, text: str) -> None:
        self._say(f"\n{monotonic() - self._began:5.1f} s  {text}")

    async def until(self, what: str, holds: Callable[[T], bool]) -> T:
        """Shows each change until it does; gives what was seen then. Raises `ProcessError` if it never does."""
        until = monotonic() + _PATIENCE
        while True:
            seen = await self._look()
            if seen != self._last:
                self._last = seen
                self._say(self._shown(seen))
            if holds(seen):
                return seen
            if monotonic() > until:
                raise ProcessError(f"the story fails: {what} in {_PATIENCE:g} s")
            await asyncio.sleep(LOOK)
