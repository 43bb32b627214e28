"""NodeShard: only nodes of the scheduler's own shard that it has claimed (Volcano's NodeShard).

Profiles do not name this plugin: the scheduler puts it before all others if nodes are divided into shards. A node that
joins or leaves the shard counts as one with a changed spec, so that earlier decisions become outdated.
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

#: Volcano's message.
REASON = "node isn't in scheduler node shard"

#: The most nodes that join together which are checked for each pod; more are assumed to help.
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
        """Queue the pod if the node was assigned to the shard before it existed."""
        mine = isinstance(new, NodeInfo) and new.name in self._membership.nodes
        return QueueingHint.QUEUE if mine else QueueingHint.SKIP


def _joined(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """Queue the pod if one of the nodes in `new` that joined is large enough; always if `new` is None."""
    if not isinstance(new, Collection) or len(new) > _LOOKED_AT or not isinstance(pod, PodInfo):
        return QueueingHint.QUEUE
    helps = any(isinstance(node, NodeInfo) and _is_large_enough(node, pod.cls) for node in new)
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _is_large_enough(node: NodeInfo, pod: PodClass) -> bool:
    """Return whether the node has the requested amounts, except for extended resources, which may be devices."""
    return all(
        amount <= node.allocatable.get(resource, 0) for resource, amount in pod.requests.items() if "/" not in resource
    )
