"""A heap of waiting pods that can also be asked for, or rid of, any pod by UID.

Deletion is lazy: a removed pod's item stays in the heap until it surfaces or until dead items outnumber the
living ones, which costs less than keeping positions (about 0.6 µs a push and pop, heapq in C).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, KeysView
from heapq import heapify, heappop, heappush, nsmallest
from typing import Any, Generic

from .entry import PodT, QueuedPodInfo

#: Dead items below which compacting is not worth a pass over the heap.
_SLACK = 64


class EntryHeap(Generic[PodT]):
    """Pods by ascending key; equal keys leave in the order in which they came."""

    __slots__ = ("_heap", "_live", "_sequence")

    def __init__(self) -> None:
        # Items are (*key, sequence, entry), never compared beyond the sequence. An item counts only while
        # `_live` maps its UID to this very item; every other item in `_heap` is dead.
        self._heap: list[tuple[Any, ...]] = []
        self._live: dict[str, tuple[Any, ...]] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, uid: object) -> bool:
        return uid in self._live

    def __iter__(self) -> Iterator[QueuedPodInfo[PodT]]:
        """All pods, in no particular order."""
        return (item[-1] for item in self._live.values())

    def uids(self) -> KeysView[str]:
        """The UIDs that are here, as a view that stays current."""
        return self._live.keys()

    def get(self, uid: str) -> QueuedPodInfo[PodT] | None:
        item = self._live.get(uid)
        return None if item is None else item[-1]

    def push(self, entry: QueuedPodInfo[PodT], key: tuple[float, ...]) -> None:
        """Put `entry` in; `key` has the same length for every pod of one heap. The UID must not be in yet."""
        self._sequence += 1
        item = (*key, self._sequence, entry)
        self._live[entry.uid] = item
        heappush(self._heap, item)

    def first_key(self) -> float | None:
        """The first component of the smallest key, or None when empty."""
        self._drop_dead()
        return self._heap[0][0] if self._heap else None

    def pop(self) -> QueuedPodInfo[PodT] | None:
        """The pod with the smallest key, or None when empty."""
        heap, live = self._heap, self._live
        while heap:
            item = heappop(heap)
            entry: QueuedPodInfo[PodT] = item[-1]
            if live.get(entry.uid) is item:
                del live[entry.uid]
                return entry
        return None

    def remove(self, uid: str) -> QueuedPodInfo[PodT] | None:
        """Take out `uid`; None when it was not in."""
        item = self._live.pop(uid, None)
        if item is None:
            return None
        if len(self._heap) > 2 * len(self._live) + _SLACK:
            self._heap = list(self._live.values())
            heapify(self._heap)
        entry: QueuedPodInfo[PodT] = item[-1]
        return entry

    def first(self, count: int, select: Callable[[QueuedPodInfo[PodT]], bool]) -> list[QueuedPodInfo[PodT]]:
        """The first `count` of the pods that `select` wants, in the order in which they would leave; O(n)."""
        chosen = nsmallest(count, (item for item in self._live.values() if select(item[-1])))
        return [item[-1] for item in chosen]

    def _drop_dead(self) -> None:
        heap, live = self._heap, self._live
        while heap and live.get(heap[0][-1].uid) is not heap[0]:
            heappop(heap)


class ActiveQueue(EntryHeap[PodT]):
    """activeQ: owner of every pod that can be popped without waiting for anything, best first.

    The order is urgent level, then PrioritySort as in kube-scheduler: priority descending, then the time at which
    the pod was last queued, so that a pod just tried goes behind its peers. Equal in all that: first come first.
    """

    __slots__ = ()

    def add(self, entry: QueuedPodInfo[PodT]) -> None:
        """`entry` may be tried from now on."""
        self.push(entry, (-entry.urgent, -entry.pod.priority, entry.timestamp))

    def update(self, entry: QueuedPodInfo[PodT], pod: PodT) -> None:
        """`pod` is what `entry`, which waits here, has become. It loses its place only where its priority changed."""
        moved = pod.priority != entry.pod.priority
        entry.pod = pod
        if moved:
            self.remove(entry.uid)
            self.add(entry)
