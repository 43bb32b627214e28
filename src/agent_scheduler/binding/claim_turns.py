"""Whose turn it is to write a claim: pods that share one would only refuse one another's writes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

from agent_scheduler.engine.state.podclaims import ClaimKey


class Turns:
    """Owner of who writes which claim, and who waits to."""

    def __init__(self) -> None:
        self._turns: dict[ClaimKey, Turn] = {}

    def __len__(self) -> int:
        return len(self._turns)

    def __iter__(self) -> Iterator[ClaimKey]:
        return iter(self._turns)

    def __contains__(self, key: object) -> bool:
        """Whether anybody writes the claim or waits to."""
        return key in self._turns

    def of(self, key: ClaimKey) -> Turn:
        """To be entered at once: `async with`, which waits for those who came before."""
        turn = self._turns.get(key)
        if turn is None:
            turn = self._turns[key] = Turn(key, self._turns)
        return turn


class Turn:
    """One claim's writers, one at a time, in the order of their coming. Invariant: it is in the table as long as
    somebody has it, and nobody waits for it otherwise."""

    __slots__ = ("_is_taken", "_key", "_table", "_waiting", "version")

    def __init__(self, key: ClaimKey, table: dict[ClaimKey, Turn]) -> None:
        self._key = key
        self._table = table
        self._is_taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        #: Of the claim, as the last write of those who had their turn made it; empty if that is over.
        self.version = ""

    def take(self) -> None:
        assert not self._is_taken, "one at a time"
        self._is_taken = True

    def leave(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._is_taken = False
        del self._table[self._key]

    async def __aenter__(self) -> Turn:
        if not self._is_taken:
            self.take()
            return self
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except BaseException:
            # Whoever has the turn passes over those who gave up. It may have come to one of these in between.
            if not waiter.cancelled():
                self.leave()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.leave()
