"""activeQ: the pods that may be tried now, best first.

The order is urgent level, then PrioritySort as in kube-scheduler: priority descending, then the time at which
the pod was last queued, so that a pod just tried goes behind its peers. Equal in all that: first come first.
"""

from __future__ import annotations

from .entry import PodT, QueuedPodInfo
from .heap import EntryHeap


class ActiveQueue(EntryHeap[PodT]):
    """Owner of every pod that can be popped without waiting for anything."""

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
