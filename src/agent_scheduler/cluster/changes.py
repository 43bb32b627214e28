"""Waits for changes of certain objects, with an asyncio.Event per waiting task, set by key."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

#: Seconds between two checks for conditions that no change reports.
_LOOK_AGAIN: Final = 1.0


class Changes(Generic[K]):
    """Owns the waiting tasks by key."""

    def __init__(self) -> None:
        #: Key -> the events to set, in order of arrival. A set would be iterated in order of addresses, which would
        #: make simulations nondeterministic.
        self._waiting: dict[K, dict[asyncio.Event, None]] = {}

    @contextmanager
    def of(self, keys: Collection[K]) -> Iterator[asyncio.Event]:
        """Provide an event that is set whenever the object of one of the keys changes."""
        changed = asyncio.Event()
        for key in keys:
            self._waiting.setdefault(key, {})[changed] = None
        try:
            yield changed
        finally:
            for key in keys:
                waiting = self._waiting[key]
                waiting.pop(changed, None)
                if not waiting:
                    del self._waiting[key]

    def wake(self, key: K) -> None:
        """Report a change of the object with this key."""
        for changed in self._waiting.get(key, ()):
            changed.set()


async def wait_for_change(changed: asyncio.Event, *, within: float = _LOOK_AGAIN) -> None:
    """Return when the event is set, or after at most `_LOOK_AGAIN` or `within` seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(min(_LOOK_AGAIN, max(0.0, within))):
            await changed.wait()
