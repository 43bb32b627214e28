"""The base of in-process controllers, and the loop that runs one.

A real cluster's kubelets and controller manager act on objects that the API server only stores. Here each is a
synchronous class on the same store. It subscribes to tables, queues keys while the store commits (a write during a
commit would overtake that commit's event to the other subscribers), and does its work in `advance`, in short slices.
Like a bare API server, `Api` has no controllers; the command `cluster` starts them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from heapq import heappop, heappush
from math import inf
from typing import Generic, Protocol, TypeVar

from .resource import Object
from .store import Record

K = TypeVar("K")
V = TypeVar("V")
#: Seconds in which changes are collected after a wake.
_GATHER = 0.01


def nobody() -> None:
    """Do nothing: the initial `wake` of a controller that no loop runs."""


class Controller(Protocol):
    """Works on a store by its clock. `wake` is called when there is new work."""

    wake: Callable[[], None] = staticmethod(nobody)

    def advance(self, *, most: int = 64) -> float | None:
        """Do up to `most` units of work.

        Returns the time of the next call by the store's clock: in the past if work is left, None if only a wake
        brings work.
        """


class WorkQueue(dict[K, None]):
    """Keys to process, without duplicates, in order of arrival."""

    def add(self, key: K) -> None:
        self[key] = None

    def extend(self, keys: Iterable[K]) -> None:
        self.update(dict.fromkeys(keys))

    def take(self) -> K:
        """Remove and return the oldest key."""
        key = next(iter(self))
        del self[key]
        return key

    def work(self, most: int, see: Callable[[K], None]) -> None:
        """Process up to `most` of the keys that are present now, removing each before its call."""
        for _ in range(min(most, len(self))):
            see(self.take())


class TimedQueue(WorkQueue[str]):
    """A work queue to which keys can be added at a later time."""

    def __init__(self) -> None:
        super().__init__()
        self._later: list[tuple[float, str]] = []

    def add_at(self, due: float, key: str) -> None:
        heappush(self._later, (due, key))

    def advance(self, now: float, most: int, see: Callable[[str], None]) -> float | None:
        """Add the keys that are due, and process up to `most`. Returns when to call again, as `Controller.advance`."""
        while self._later and self._later[0][0] <= now:
            self.add(heappop(self._later)[1])
        self.work(most, see)
        if self:
            return -inf
        return self._later[0][0] if self._later else None


class Index(Generic[K, V]):
    """A mapping from keys to values that is indexed by value. Keys of a value are in order of insertion."""

    def __init__(self) -> None:
        self.by_value: dict[V, dict[K, None]] = {}
        self.by_key: dict[K, tuple[V, ...]] = {}

    def put(self, key: K, values: tuple[V, ...]) -> bool:
        """Set the values of a key; return whether it had any before."""
        before = self.by_key.pop(key, ())
        if before != values:
            for value in before:
                keys = self.by_value[value]
                del keys[key]
                if not keys:
                    del self.by_value[value]
            for value in values:
                self.by_value.setdefault(value, {})[key] = None
        if values:
            self.by_key[key] = values
        return bool(before)

    def keys(self, value: V) -> Collection[K]:
        return self.by_value.get(value, {})


def reference_to(owner: Record, api_version: str, kind: str) -> Object:
    """Return the controller owner reference of objects that `owner` creates."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


async def run(
    controller: Controller, *, clock: Callable[[], float], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Run a controller until cancelled. `clock` is the store's.

    Changes are collected for a short time and processed in slices between other work of the event loop, because
    background work must not delay responses.
    """
    woken = asyncio.Event()
    controller.wake = woken.set
    while True:
        woken.clear()
        deadline = controller.advance()
        wait = None if deadline is None else deadline - clock()
        if wait is not None and wait <= 0:
            await sleep(0.0)
            continue
        try:
            async with asyncio.timeout(wait):
                await woken.wait()
        except TimeoutError:
            continue
        await sleep(_GATHER)
