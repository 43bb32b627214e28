"""NodeShard: only nodes of the scheduler's own shard, while it has claimed them (Volcano's NodeShard).

Not a plugin that a profile names: the scheduler puts it before all others where nodes are shared by shards. A node that
joins or leaves the shard counts as one whose spec has changed, so that decisions made before it are seen as outdated.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ..events.events import NODE_SHARD_UPDATE, ActionType, ClusterEvent, Resource
from ..events.hints import ClusterEventWithHint, QueueingHint
from ..framework.handle import Handle
from ..framework.plugin import Depends, Filter
from ..shards.claims import Membership
from ..state.columns import Bools, Columns, Rows
from ..state.nodeinfo import NodeInfo
from ..state.podclass import PodClass
from ..state.podinfo import PodInfo

NAME = "NodeShard"

#: Volcano's words.
REASON = "node isn't in scheduler node shard"

#: Of nodes that join together, so many are looked at for each pod; more are taken to help.
_LOOKED_AT = 16


class NodeShard(Filter):
    name = NAME
    depends = Depends.NODE
    reads_requests = False
    reason = REASON

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    def prepare(self, pod: PodClass, handle: Handle) -> object | None:
        return self

    def feasible(self, state: object, nodes: Columns, rows: Rows) -> Bools:
        mine, known = self._membership.nodes, nodes.nodes
        found = (known[row] for row in rows.tolist())
        return np.fromiter((node is not None and node.name in mine for node in found), np.bool_, len(rows))

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(NODE_SHARD_UPDATE, _joined),
            ClusterEventWithHint(ClusterEvent(Resource.NODE, ActionType.ADD), self._appeared),
        )

    def _appeared(self, pod: object, old: object | None, new: object | None) -> QueueingHint:
        """A node that was named before it was there."""
        mine = isinstance(new, NodeInfo) and new.name in self._membership.nodes
        return QueueingHint.QUEUE if mine else QueueingHint.SKIP


def _joined(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """`new`: the nodes that joined; None for another event, after which every pod is tried."""
    if not isinstance(new, Collection) or len(new) > _LOOKED_AT or not isinstance(pod, PodInfo):
        return QueueingHint.QUEUE
    helps = any(isinstance(node, NodeInfo) and _is_large_enough(node, pod.cls) for node in new)
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _is_large_enough(node: NodeInfo, pod: PodClass) -> bool:
    """Extended resources are left out: they may be the matter of devices."""
    return all(
        amount <= node.allocatable.get(resource, 0)
        for resource, amount in pod.requests.items()
        if "/" not in resource
    )
