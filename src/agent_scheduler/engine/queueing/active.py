"""activeQ: the pods that may be tried now, best first.

The order is urgent level, then PrioritySort as in kube-scheduler: priority descending, then the time at which
the pod was last queued, so that a pod just tried goes behind its peers. Equal in all that: first come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic

from .entry import PodT, QueuedPodInfo
from .heap import EntryHeap


class ActiveQueue(Generic[PodT]):
    """Owner of every pod that can be popped without waiting for anything."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: EntryHeap[PodT] = EntryHeap()

    def __len__(self) -> int:
        return len(self._heap)

    def __contains__(self, uid: object) -> bool:
        return uid in self._heap

    def __iter__(self) -> Iterator[QueuedPodInfo[PodT]]:
        return iter(self._heap)

    def get(self, uid: str) -> QueuedPodInfo[PodT] | None:
        return self._heap.get(uid)

    def push(self, entry: QueuedPodInfo[PodT]) -> None:
        self._heap.push(entry, -entry.urgent, -entry.pod.priority, entry.timestamp)

    def pop(self) -> QueuedPodInfo[PodT] | None:
        return self._heap.pop()

    def remove(self, uid: str) -> QueuedPodInfo[PodT] | None:
        return self._heap.remove(uid)

    def update(self, entry: QueuedPodInfo[PodT], pod: PodT) -> None:
        """`pod` is what `entry`, which waits here, has become. It loses its place only where its priority changed."""
        moved = pod.priority != entry.pod.priority
        entry.pod = pod
        if moved:
            self._heap.remove(entry.uid)
            self.push(entry)

    def sorted(self) -> list[QueuedPodInfo[PodT]]:
        """All pods in the order in which they would be popped."""
        return self._heap.sorted()
