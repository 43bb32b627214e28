"""Pods without a node for which room of their queue is kept although they had no gate.

These are pods of a reserved stage for which an earlier process chose a node: their status names it
(`nominatedNodeName`, docs/decisions/0047), and a session places them or removes the nomination. The others are pods for
which victims are being evicted: without kept room, other pods might use the room in the queue, and the evictions would
be in vain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..state.podinfo import PodInfo
from .asks import turn_of_pod
from .entries import Standing
from .promises import Promises
from .room import QueueRoom


class KeptRoom:
    """Owner of these pods.

    Invariant: while queues are counted, each of `pods` that can be placed has an entry in the book, as reserved if it
    was admitted past its queue's gate, or else with the standing STANDS_BY.
    """

    def __init__(self, room: QueueRoom, promises: Promises) -> None:
        self._room = room
        self._promises = promises
        #: UID -> pod.
        self.pods: dict[str, PodInfo] = {}
        #: The UIDs of the pods for which victims are being evicted.
        self._claims: set[str] = set()

    def see(self, pod: PodInfo, *, is_placed: bool) -> bool:
        """Update a new or changed pod. Returns whether its room was kept and is no longer."""
        if (pod.nominated_node_name or pod.uid in self._claims) and not is_placed:
            self.pods[pod.uid] = pod
            self._count(pod)
            return False
        return self.drop(pod.uid)

    def drop(self, uid: str) -> bool:
        """Remove a pod. Returns whether its room was kept."""
        self._claims.discard(uid)
        return self.pods.pop(uid, None) is not None

    def claim(self, pods: Iterable[PodInfo], placed: Collection[str]) -> list[str]:
        """Set the pods for which victims are being evicted. Returns the UIDs of pods whose room is no longer kept."""
        now = {pod.uid: pod for pod in pods if pod.uid not in placed}
        over = [uid for uid in sorted(self._claims) if uid not in now and self.drop(uid)]
        self._claims.update(now)
        self.pods.update(now)
        for pod in now.values():
            self._count(pod)
        return over

    def count(self, uid: str) -> bool:
        """Count a pod whose reservation has ended, if its room is kept. Returns whether it is."""
        pod = self.pods.get(uid)
        if pod is not None:
            self._count(pod)
        return pod is not None

    def count_all(self) -> None:
        for pod in self.pods.values():
            self._count(pod)

    def _count(self, pod: PodInfo) -> None:
        room = self._room
        if not room.active or pod.uid in room.keeping:
            return
        if queue := room.keeping_queue(pod):
            vector = room.members.vector(pod)
            room.book.set(pod.uid, queue, vector, Standing.STANDS_BY, turn_of_pod(pod))
            self._promises.spend(pod, vector)
        else:
            self._promises.uncount(pod.uid)
