"""A story in printed lines: the state of a cluster, whenever it has changed, until an expected state is reached."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final, Generic, TypeVar

from bench.harness.processes import ProcessError

T = TypeVar("T")

#: Seconds between two reads of the state, and until a state that does not occur is an error.
LOOK: Final = 0.2
_PATIENCE: Final = 30.0


class Teller(Generic[T]):
    """Prints a story: `say` prints a text, `look` reads the cluster, and `shown` formats its result."""

    def __init__(
        self, say: Callable[[str], object], look: Callable[[], Awaitable[T]], shown: Callable[[T], str]
    ) -> None:
        self._say = say
        self._look = look
        self._shown = shown
        self._began = monotonic()
        self._last: T | None = None

    def tell(self, text: str) -> None:
        self._say(f"\n{monotonic() - self._began:5.1f} s  {text}")

    async def until(self, what: str, holds: Callable[[T], bool]) -> T:
        """Print each change until `holds`; return that state. Raises `ProcessError` if it never does."""
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
