"""Judges the use of nodes that an autoscaler adds: L23 of docs/reliability.md, by the API's own objects."""

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

#: Faults that keep the pods for which a node was added from using it.
_IRREGULAR = (
    *("node_changed", "node_again", "node_vanished", "foreign", "rolled_back", "queue_changed", "group_changed"),
    *("pod_changed", "members_deleted", "pod_deleted", "shards_changed", "room_taken", "fleet_changed"),
)
#: Seconds from the last effect of a fault until every process has observed and reported what faults have changed.
_OBSERVED = 5.0


@dataclass(slots=True)
class _New:
    """A node, the UIDs of the pods for which it was added, and how many irregular faults every process had observed."""

    pods: tuple[str, ...]
    troubles: int


class NewNodes(Judge):
    """The judge of added nodes: owner of those that were never used. Subscribes to the store."""

    def __init__(self, world: World, cluster: GateCluster) -> None:
        super().__init__(world)
        self._gates = cluster
        #: Node group -> for which pods nodes of it are being added, in the order of their arrival.
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

    def _observed(self) -> int:
        """Return the number of irregular faults so far, or 0 while a late watch may still hide their changes.

        A process whose watch of nodes is silent binds members to a node as it was before, and the kubelet rejects them.
        """
        is_calm = self.world.loop.time() >= self.world.plan.calm_at + _OBSERVED
        return self._troubles() if is_calm else 0

    def _decided(self, _pod: Any, new: Any) -> None:
        if new is not self._last:
            self._last = new
            uids = tuple(each.uid for each in new.pods)
            self._coming[new.group.name].append(_New(uids, self._observed()))

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
        """Check that the pods for which a node was added still lack only nodes, are gone, or have other nodes."""
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
        """Check the unused nodes of a world at rest."""
        for name, new in self._unused.items():
            self._judge(name, new, "is", by)
