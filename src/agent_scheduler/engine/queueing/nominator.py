"""Nominations: pods that are to run on a node which has no room for them yet.

Preemption nominates a node while its victims leave. Whoever filters that node meanwhile must count the
nominated pods in, or a lesser pod takes the room.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Generic

from .entry import PodT


class Nominator(Generic[PodT]):
    """Owner of the nominations. Invariant: a pod is nominated to at most one node, and both maps agree."""

    def __init__(self, *, is_pending: Callable[[str], bool] = lambda uid: True) -> None:
        """`is_pending`: whether a UID is a pod that exists and has no node, as the watch last said."""
        self._is_pending = is_pending
        self._by_node: dict[str, dict[str, PodT]] = {}
        #: UID -> the node that it is nominated to. To be read.
        self.nominated: dict[str, str] = {}

    def add(self, pod: PodT, node_name: str = "") -> None:
        """Nominate `pod` to `node_name`, or where that is empty to what its status says, in place of any earlier one.

        Does nothing more where neither names a node, nor for a pod that is gone or bound: a late caller must
        not reserve room for it.
        """
        self.delete(pod.uid)
        node = node_name or pod.nominated_node_name
        if node and self._is_pending(pod.uid):
            self.nominated[pod.uid] = node
            self._by_node.setdefault(node, {})[pod.uid] = pod

    def delete(self, uid: str) -> PodT | None:
        """Gives the pod, as it was when it was nominated last; None if it was not."""
        node = self.nominated.pop(uid, None)
        if node is None:
            return None
        pods = self._by_node[node]
        pod = pods.pop(uid)
        if not pods:
            del self._by_node[node]
        return pod

    def update(self, old: PodT, new: PodT) -> None:
        """`old` became `new`.

        Where that did not change what the status names, a nomination made in memory stays: its status write may
        still be on the way. (kube-scheduler keeps it only where the status names none, and goes back to an old one.)
        """
        kept = ""
        if old.nominated_node_name == new.nominated_node_name:
            kept = self.nominated.get(old.uid, "")
            if not kept:
                return
        self.add(new, kept)

    def nodes(self) -> Collection[str]:
        """The nodes that have nominated pods, as a view that stays current."""
        return self._by_node.keys()

    def pods_for(self, node_name: str) -> tuple[PodT, ...]:
        """The pods nominated to `node_name`, in the order of their nominations."""
        return tuple(self._by_node.get(node_name, {}).values())

    def check_invariants(self) -> None:
        filed = {uid: node for node, pods in self._by_node.items() for uid in pods}
        assert filed == self.nominated, "the nominator's maps disagree"
        assert all(self._by_node.values()), "a node without nominated pods is kept"
