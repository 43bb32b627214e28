"""What small in-process controllers have in common, and the loop that drives one.

A real cluster's kubelets and controller manager keep objects true that the API server only stores. Here each is a
synchronous class over the same store: it subscribes to tables, notes what changed while the store commits (a write
from inside a commit would overtake that commit's event on its way to the other subscribers), and does the work in
`advance`, in short slices. `Api` has none of them, as a bare API server has none; the `cluster` command starts
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Generic, Protocol, TypeVar

from .resource import Object
from .store import Record

K = TypeVar("K")
V = TypeVar("V")
#: Seconds for which changes are gathered after a wake.
_GATHER = 0.01


def nobody() -> None:
    """The wake of a controller that no loop drives yet."""


class Controller(Protocol):
    """Works on a store, on its clock. `wake` is called when there is something new to do."""

    wake: Callable[[], None] = staticmethod(nobody)

    def advance(self, *, most: int = 64) -> float | None:
        """Do up to `most` pieces of work.

        Returns the time (of the store's clock) at which to call again: past if more is to be done at once,
        None if only a wake can bring anything.
        """


class WorkQueue(dict[K, None]):
    """Keys to look at, each once, in order of arrival."""

    def add(self, key: K) -> None:
        self[key] = None

    def extend(self, keys: Iterable[K]) -> None:
        self.update(dict.fromkeys(keys))

    def take(self) -> K:
        """Take off what was noted first."""
        key = next(iter(self))
        del self[key]
        return key

    def work(self, most: int, see: Callable[[K], None]) -> None:
        """Take off up to `most` of the keys that are there now, and look at each."""
        for _ in range(min(most, len(self))):
            see(self.take())


class Index(Generic[K, V]):
    """Which keys have which values, found both ways. Keys of a value are in the order in which they got it."""

    def __init__(self) -> None:
        self.by_value: dict[V, dict[K, None]] = {}
        self.by_key: dict[K, tuple[V, ...]] = {}

    def put(self, key: K, values: tuple[V, ...]) -> bool:
        """From now on the key has exactly these values. True if it had any."""
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
    """The owner reference by which an object controls what is made for it."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


async def run(
    controller: Controller,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Drives a controller until cancelled. `clock` is the store's.

    Work is gathered for a moment and done in slices, with the loop's other work between them: what controllers
    do is background, and must not add to the answer time of a request.
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
