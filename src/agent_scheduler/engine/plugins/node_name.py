"""NodeName: a pod with `spec.nodeName` goes only to that node."""

from __future__ import annotations

from collections.abc import Sequence

from ..events.events import ActionType, ClusterEvent, Resource
from ..events.hints import ClusterEventWithHint, QueueingHint
from ..events.prehints import ByKeys, PodIndex
from ..framework.handle import Handle
from ..framework.plugin import Depends, Filter
from ..state.columns import NODE_NAME, Bools, Columns, Rows
from ..state.nodeinfo import NodeInfo
from ..state.podclass import PodClass
from ..state.podinfo import PodInfo

REASON = "node(s) didn't match the requested node name"


class NodeName(Filter):
    name = "NodeName"
    depends = Depends.NODE
    reads_requests = False
    reason = REASON

    def prepare(self, pod: PodClass, handle: Handle) -> str | None:
        return pod.node_name or None

    def feasible(self, state: str, nodes: Columns, rows: Rows) -> Bools:
        mask: Bools = nodes.label(NODE_NAME)[rows] == nodes.interns.known_value(state)
        return mask

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(
                ClusterEvent(Resource.NODE, ActionType.ADD), _named, ByKeys(_BY_NODE, _name, once=True)
            ),
        )


def _named(pod: PodInfo, old: object | None, new: object | None) -> QueueingHint:
    """Queue the pod if the added node is the named one, or if the pod no longer names one."""
    assert isinstance(new, NodeInfo)
    return QueueingHint.QUEUE if pod.cls.node_name in ("", new.name) else QueueingHint.SKIP


def _name(event: ClusterEvent, old: NodeInfo | None, new: NodeInfo) -> tuple[str, str]:
    return new.name, ""


_BY_NODE = PodIndex(keys_of=lambda pod: (pod.cls.node_name,), shared=lambda pod: pod.cls.node_name)
