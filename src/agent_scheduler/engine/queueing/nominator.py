"""Nominations: pods that will run on a node which has no room for them yet.

Preemption nominates a node while its victims terminate. Filters on that node must count the nominated pods, or a pod of
lower priority takes the room.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..state.podinfo import PodInfo


class Nominator:
    """Owns the nominations. Invariant: a pod is nominated to at most one node, and both maps agree."""

    def __init__(self, *, is_pending: Callable[[str], bool]) -> None:
        """Create an empty nominator.

        `is_pending` returns whether a UID belongs to a pod that exists without a node, according to the watch.
        """
        self._is_pending = is_pending
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        #: UID -> the node that it is nominated to. Read only.
        self.nominated: dict[str, str] = {}

    def add(self, pod: PodInfo, node_name: str = "") -> None:
        """Nominate `pod` to `node_name`, or if empty to the node in its status, replacing any earlier nomination.

        Only removes the earlier nomination if neither names a node, or if the pod is deleted or bound: a late caller
        must not reserve room for it.
        """
        self.delete(pod.uid)
        node = node_name or pod.nominated_node_name
        if node and self._is_pending(pod.uid):
            self.nominated[pod.uid] = node
            self._by_node.setdefault(node, {})[pod.uid] = pod

    def delete(self, uid: str) -> PodInfo | None:
        """Remove the nomination. Return the pod of the last nomination, or None if there was none."""
        node = self.nominated.pop(uid, None)
        if node is None:
            return None
        pods = self._by_node[node]
        pod = pods.pop(uid)
        if not pods:
            del self._by_node[node]
        return pod

    def update(self, old: PodInfo, new: PodInfo) -> None:
        """Handle the change of a pod from `old` to `new`.

        If the status still names the same node, a nomination made in memory remains, because its status write may be on
        the way. (kube-scheduler keeps it only if the status names no node, and otherwise returns to the old one.)
        """
        kept = ""
        if old.nominated_node_name == new.nominated_node_name:
            kept = self.nominated.get(old.uid, "")
            if not kept:
                return
        self.add(new, kept)

    def nodes(self) -> Collection[str]:
        """Return the nodes with nominated pods, as a view that stays current."""
        return self._by_node.keys()

    def pods_for(self, node_name: str) -> tuple[PodInfo, ...]:
        """Return the pods nominated to `node_name`, in the order of their nominations."""
        return tuple(self._by_node.get(node_name, {}).values())

    def check_invariants(self) -> None:
        filed = {uid: node for node, pods in self._by_node.items() for uid in pods}
        assert filed == self.nominated, "the nominator's maps disagree"
        assert all(self._by_node.values()), "a node without nominated pods is kept"
