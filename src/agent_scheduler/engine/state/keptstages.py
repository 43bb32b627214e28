"""Pods whose stage has not come, and for which an earlier process chose a node: their room of the queue is kept.

Their status says so (`nominatedNodeName`, docs/decisions/0047). A session places them, or has the nomination taken
away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..quotas.book import Standing
from .gatedpods import in_turn
from .podinfo import PodInfo

if TYPE_CHECKING:
    from .queueusage import QueueUsage


class KeptStages:
    """Owner of who stands by by its status alone. Invariant: while queues are counted, each of `pods` stands in the
    book, as standing by, or reserved if it was let past its queue's gate."""

    def __init__(self, usage: QueueUsage) -> None:
        self._usage = usage
        #: By UID.
        self.pods: dict[str, PodInfo] = {}

    def see(self, pod: PodInfo, *, is_placed: bool) -> bool:
        """The pod is new, or has changed. Whether its room is kept no longer."""
        if pod.nominated_node_name and not is_placed:
            self.pods[pod.uid] = pod
            self._count(pod)
            return False
        return self.drop(pod.uid)

    def drop(self, uid: str) -> bool:
        """Whether it was among them."""
        return self.pods.pop(uid, None) is not None

    def count_all(self) -> None:
        for pod in self.pods.values():
            self._count(pod)

    def _count(self, pod: PodInfo) -> None:
        usage = self._usage
        if usage.active and pod.uid not in usage.gated.reserved and (queue := usage.queue_of(pod)):
            usage.book.set(pod.uid, queue, usage.vector(pod), Standing.STANDS_BY, in_turn(pod))
            usage.promises.spend(pod, usage.vector(pod))
