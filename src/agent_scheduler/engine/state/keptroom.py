"""Pods without a node for which room of their queue is kept, though they were let past no gate.

Those whose stage has not come, and for which an earlier process chose a node: their status says so
(`nominatedNodeName`, docs/decisions/0047), and a session places them, or has the nomination taken away. And those for
which others are leaving nodes: else who comes between would have the room in the queue, and these were evicted for
nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from ..quotas.entries import Standing
from .asks import turn_of_pod
from .podinfo import PodInfo

if TYPE_CHECKING:
    from .queueusage import QueueUsage


class KeptRoom:
    """Owner of who they are. Invariant: while queues are counted, each of `pods` that can be placed stands in the book,
    as standing by, or reserved if it was let past its queue's gate."""

    def __init__(self, usage: QueueUsage) -> None:
        self._usage = usage
        #: By UID.
        self.pods: dict[str, PodInfo] = {}
        #: UIDs of those for which others are leaving.
        self._claims: set[str] = set()

    def see(self, pod: PodInfo, *, is_placed: bool) -> bool:
        """The pod is new, or has changed. Whether its room is kept no longer."""
        if (pod.nominated_node_name or pod.uid in self._claims) and not is_placed:
            self.pods[pod.uid] = pod
            self._count(pod)
            return False
        return self.drop(pod.uid)

    def drop(self, uid: str) -> bool:
        """Whether it was among them."""
        self._claims.discard(uid)
        return self.pods.pop(uid, None) is not None

    def claim(self, pods: Iterable[PodInfo], placed: Collection[str]) -> list[str]:
        """From now on others leave for these, and for nobody else. UIDs of pods whose room is kept no longer."""
        now = {pod.uid: pod for pod in pods if pod.uid not in placed}
        over = [uid for uid in sorted(self._claims) if uid not in now and self.drop(uid)]
        self._claims.update(now)
        self.pods.update(now)
        for pod in now.values():
            self._count(pod)
        return over

    def count(self, uid: str) -> bool:
        """Nothing is reserved for the pod any more. Whether its room is kept all the same."""
        pod = self.pods.get(uid)
        if pod is not None:
            self._count(pod)
        return pod is not None

    def count_all(self) -> None:
        for pod in self.pods.values():
            self._count(pod)

    def _count(self, pod: PodInfo) -> None:
        usage = self._usage
        if not usage.active or pod.uid in usage.gated.keeping:
            return
        if queue := usage.keeping_queue(pod):
            usage.book.set(pod.uid, queue, usage.vector(pod), Standing.STANDS_BY, turn_of_pod(pod))
            usage.promises.spend(pod, usage.vector(pod))
        else:
            usage.uncount(pod.uid)
