"""NodeDeclaredFeatures: a pod that needs a kubelet feature goes where it is declared (KEP-5328)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..events.events import ActionType, ClusterEvent, Resource
from ..events.hints import ClusterEventWithHint, QueueingHint
from ..events.prehints import ANYWAY, ByKeys, Key, PodIndex, own_pod
from ..framework.handle import Handle
from ..framework.plugin import Depends, Filter
from ..state.columns import Bools, Columns, Rows
from ..state.nodeinfo import NodeInfo
from ..state.podclass import PodClass
from ..state.podinfo import PodInfo

REASON = "node(s) didn't match Pod's required features"


class NodeDeclaredFeatures(Filter):
    name = "NodeDeclaredFeatures"
    depends = Depends.NODE
    reads_requests = False
    reason = REASON

    def prepare(self, pod: PodClass, handle: Handle) -> frozenset[str] | None:
        return pod.features or None

    def feasible(self, state: frozenset[str], nodes: Columns, rows: Rows) -> Bools:
        each = nodes.nodes
        passing = ((node := each[row]) is not None and state <= node.features for row in rows.tolist())
        return np.fromiter(passing, np.bool_, rows.shape[0])

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(
                ClusterEvent(Resource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_DECLARED_FEATURE),
                _now_declared,
                ByKeys(_BY_FEATURE, _declared_by, once=True),
            ),
            ClusterEventWithHint(ClusterEvent(Resource.TARGET_POD, ActionType.UPDATE), _own_change, own_pod),
        )


def _now_declared(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """Queue the pod if the node newly declares all needed features.

    kube-scheduler also queues for any other change of the declared features, which helps no pod.
    """
    assert isinstance(pod, PodInfo) and isinstance(new, NodeInfo)
    needed = pod.cls.features
    was = isinstance(old, NodeInfo) and needed <= old.features
    return QueueingHint.QUEUE if needed <= new.features and not was else QueueingHint.SKIP


def _one_feature(pod: PodInfo) -> Iterable[Key]:
    """Return one of the needed features: a node that helps declares them all."""
    return (min(pod.cls.features, default=ANYWAY),)


def _declared_by(event: ClusterEvent, old: NodeInfo | None, new: NodeInfo) -> list[Key]:
    return [*new.features] if old is not None else [ANYWAY, *new.features]


_BY_FEATURE = PodIndex(keys_of=_one_feature, shared=lambda pod: pod.cls)


def _own_change(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """Queue the pod if its needed features have changed."""
    assert isinstance(pod, PodInfo) and isinstance(old, PodInfo) and isinstance(new, PodInfo)
    changed = new.uid == pod.uid and new.cls.features != old.cls.features
    return QueueingHint.QUEUE if changed else QueueingHint.SKIP
