"""A lock for each claim that is being written: pods that share one would only refuse one another's writes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

from agent_scheduler.engine.state.podclaims import ClaimKey


class KeyLocks:
    """Owner of who writes which claim, and who waits to."""

    def __init__(self) -> None:
        self._locks: dict[ClaimKey, KeyLock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    def __iter__(self) -> Iterator[ClaimKey]:
        return iter(self._locks)

    def __contains__(self, key: object) -> bool:
        """Whether anybody writes the claim or waits to."""
        return key in self._locks

    def of(self, key: ClaimKey) -> KeyLock:
        """To be entered at once: `async with`, which waits for those who came before."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = KeyLock(key, self._locks)
        return lock


class KeyLock:
    """One claim's writers, one at a time, first come, first served. Invariant: it is in the table as long as it is
    held, and nobody waits for it otherwise."""

    __slots__ = ("_is_held", "_key", "_table", "_waiting", "version")

    def __init__(self, key: ClaimKey, table: dict[ClaimKey, KeyLock]) -> None:
        self._key = key
        self._table = table
        self._is_held = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        #: Of the claim, as the last write of those who held the lock made it; empty if that is over.
        self.version = ""

    def _release(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._is_held = False
        del self._table[self._key]

    async def __aenter__(self) -> KeyLock:
        if not self._is_held:
            self._is_held = True
            return self
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except BaseException:
            # The holder passes over those who gave up. It may have been handed to one of these in between.
            if not waiter.cancelled():
                self._release()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._release()
