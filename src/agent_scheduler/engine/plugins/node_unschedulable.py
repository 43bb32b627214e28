"""NodeUnschedulable: cordoned nodes accept only pods that tolerate the cordon."""

from __future__ import annotations

from collections.abc import Sequence

from agent_scheduler.objects.wire import Taint

from ..events.events import ActionType, ClusterEvent, Resource
from ..events.hints import ClusterEventWithHint, QueueingHint
from ..events.prehints import nobody_or_all, own_pod
from ..framework.handle import Handle
from ..framework.plugin import Depends, Filter
from ..rules.tolerance import tolerated
from ..state.columns import Bools, Columns, Rows
from ..state.nodeinfo import NodeInfo
from ..state.podclass import PodClass
from ..state.podinfo import PodInfo

REASON = "node(s) were unschedulable"

#: The taint that a cordoned node is treated as having.
UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeUnschedulable(Filter):
    name = "NodeUnschedulable"
    depends = Depends.NODE
    reads_requests = False
    reason = REASON

    def prepare(self, pod: PodClass, handle: Handle) -> object | None:
        return None if tolerated(UNSCHEDULABLE, pod.tolerations) else self

    def feasible(self, state: object, nodes: Columns, rows: Rows) -> Bools:
        return ~nodes.unschedulable[rows]

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(
                ClusterEvent(Resource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_TAINT),
                _uncordoned,
                nobody_or_all(_opened),
            ),
            ClusterEventWithHint(
                ClusterEvent(Resource.TARGET_POD, ActionType.UPDATE_POD_TOLERATION), _own_toleration, own_pod
            ),
        )


def _uncordoned(pod: object, old: object | None, new: object | None) -> QueueingHint:
    return QueueingHint.QUEUE if _opened(old, new) else QueueingHint.SKIP


def _opened(old: object | None, new: object | None) -> bool:
    assert isinstance(new, NodeInfo)
    was_open = isinstance(old, NodeInfo) and not old.unschedulable
    return not (new.unschedulable or was_open)


def _own_toleration(pod: object, old: object | None, new: object | None) -> QueueingHint:
    assert isinstance(pod, PodInfo) and isinstance(new, PodInfo)
    own = new.uid == pod.uid and tolerated(UNSCHEDULABLE, new.tolerations)
    return QueueingHint.QUEUE if own else QueueingHint.SKIP
