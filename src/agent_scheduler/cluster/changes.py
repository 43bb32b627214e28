"""Waiting for certain objects to change: an asyncio.Event for each that waits, set by key."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

#: Seconds between two looks at what no change tells.
_LOOK_AGAIN: Final = 1.0


class Changes(Generic[K]):
    """Owner of who waits for which key."""

    def __init__(self) -> None:
        #: Key -> the events to set, in the order in which they came; a set would be walked in the order of addresses,
        #: so that a simulated world would have another history each time.
        self._waiting: dict[K, dict[asyncio.Event, None]] = {}

    @contextmanager
    def of(self, keys: Collection[K]) -> Iterator[asyncio.Event]:
        """An event that is set whenever the object of one of the keys has changed."""
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
        """The object of this key has changed."""
        for changed in self._waiting.get(key, ()):
            changed.set()


async def wait_for_change(changed: asyncio.Event, *, within: float = _LOOK_AGAIN) -> None:
    """Returns when it is set, or when it is time to look again; `within` seconds, if that is sooner."""
    with suppress(TimeoutError):
        async with asyncio.timeout(min(_LOOK_AGAIN, max(0.0, within))):
            await changed.wait()
