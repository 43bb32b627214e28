"""What becomes of the nodes that an autoscaler adds: L23 of docs/reliability.md, judged from the API's own objects."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any

from embedded_kubernetes.node_groups import NODE_GROUP
from embedded_kubernetes.store import Event

from .api import NODES, PODS, content, name_of, node_of, uid_of
from .gate_cluster import GateCluster
from .judge import Judge, hear_before
from .kinds import World
from .queue_rest import Waiting
from .rules import Rules

#: What keeps the pods for which a node came from going there.
_IRREGULAR = (
    *(
        "node_changed",
        "node_again",
        "node_vanished",
        "foreign",
        "rolled_back",
        "queue_changed",
        "group_changed",
    ),
    *("pod_changed", "members_deleted", "pod_deleted", "shards_changed", "room_taken", "fleet_changed"),
)


@dataclass(slots=True)
class _New:
    """A node, the UIDs of the pods for which it came, and how often something irregular had happened by then."""

    pods: tuple[str, ...]
    troubles: int


class NewNodes(Judge):
    """Subscribes to the store. Owner of which nodes have come and were never used."""

    def __init__(self, world: World, cluster: GateCluster) -> None:
        super().__init__(world)
        self._gates = cluster
        #: Node group -> for whom nodes of it are on their way, in the order in which these come.
        self._coming: dict[str, deque[_New]] = defaultdict(deque)
        self._unused: dict[str, _New] = {}
        world.store.tables[NODES].subscribers.append(self._node)
        world.store.tables[PODS].subscribers.append(self._pod)
        hear_before(cluster.autoscaler, "_tell", self._decided)
        self._last: Any = None

    def went_back(self) -> None:
        self._coming.clear()
        self._unused.clear()

    def _troubles(self) -> int:
        return sum(self.world.plan.fired[name] for name in _IRREGULAR)

    def _decided(self, _pod: Any, new: Any) -> None:
        if new is not self._last:
            self._last = new
            uids = tuple(each.uid for each in new.pods)
            self._coming[new.group.name].append(_New(uids, self._troubles()))

    def _node(self, event: Event) -> None:
        name = event.record.name
        if event.type == "DELETED":
            if (new := self._unused.pop(name, None)) is not None:
                self._judge(name, new, "was taken away")
            return
        group = (content(event.record)["metadata"].get("labels") or {}).get(NODE_GROUP, "")
        if event.type == "ADDED" and self._coming[group]:
            self._unused[name] = self._coming[group].popleft()

    def _pod(self, event: Event) -> None:
        if node := node_of(content(event.record)):
            self._unused.pop(node, None)

    def _judge(self, name: str, new: _New, what: str, by: Rules | None = None) -> None:
        """Those for whom it came wait for nodes alone, or are gone, or have gone elsewhere."""
        world, gangs = self.world, self.world.gangs
        if world.backups.restoring or gangs is None or self._troubles() != new.troubles:
            return
        self._look("L23")
        waiting = Waiting(world, gangs, by or Rules())
        there = {uid_of(pod): pod for pod in waiting.pods if not node_of(pod)}
        for pod in filter(None, map(there.get, new.pods)):
            if problem := waiting.lacks(pod):
                self._violated("L23", f"{name} came for {name_of(pod)} and {what} unused: {problem}")

    def check(self, by: Rules) -> None:
        """At rest."""
        for name, new in self._unused.items():
            self._judge(name, new, "is", by)
