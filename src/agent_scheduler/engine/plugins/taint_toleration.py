"""TaintToleration: refuses nodes by untolerated taints, and ranks them.

NoSchedule and NoExecute taints must all be tolerated; nodes with fewer untolerated PreferNoSchedule taints rank first.
Nodes share few taint lists, so a class decides on each list once and rows look up their answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agent_scheduler.objects.wire import Toleration

from ..events.events import ActionType, ClusterEvent, Resource
from ..events.hints import ClusterEventWithHint, QueueingHint
from ..events.prehints import ALL_PODS, AllPods, ByKeys, Key, PodIndex, own_pod
from ..framework.handle import Handle
from ..framework.plugin import Depends, Filter, Score, default_normalize_reversed
from ..rules.tolerance import schedulable, tolerated
from ..state.columns import Bools, Columns, Ints, Rows
from ..state.interns import Interns
from ..state.nodeinfo import NodeInfo, Taints
from ..state.podclass import PodClass
from ..state.podinfo import PodInfo

REASON = "node(s) had untolerated taint(s)"


class TaintAnswers:
    """A class's answer for each interned taint list, of one generation of the interns.

    Equal if the tolerations are, because the answers are then always equal.
    """

    __slots__ = ("_generation", "allowed", "preferring", "tolerations", "untolerated")

    def __init__(self, tolerations: tuple[Toleration, ...]) -> None:
        self.tolerations = tolerations
        self.preferring = tuple(
            toleration for toleration in tolerations if toleration.effect in (None, "", "PreferNoSchedule")
        )
        self._generation = -1
        self._forget()

    def _forget(self) -> None:
        self.allowed: Bools = np.zeros(0, dtype=np.bool_)
        self.untolerated: Ints = np.zeros(0, dtype=np.int64)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaintAnswers) and self.tolerations == other.tolerations

    def __hash__(self) -> int:
        return hash(self.tolerations)

    def catch_up(self, interns: Interns) -> None:
        """Answer for new taint lists. Call after reading the ids, because reading may intern some."""
        if self._generation != interns.generation:
            self._generation = interns.generation
            self._forget()
        known = self.allowed.shape[0]
        fresh = interns.taints[known:]
        if fresh:
            self.allowed = np.append(self.allowed, [schedulable(taints, self.tolerations) for taints in fresh])
            self.untolerated = np.append(
                self.untolerated, [_untolerated_preferences(taints, self.preferring) for taints in fresh]
            )


def _untolerated_preferences(taints: Taints, tolerations: tuple[Toleration, ...]) -> int:
    return sum(taint.effect == "PreferNoSchedule" and not tolerated(taint, tolerations) for taint in taints)


class TaintToleration(Filter, Score):
    name = "TaintToleration"
    depends = Depends.NODE
    reads_requests = False
    normalize = staticmethod(default_normalize_reversed)
    reason = REASON

    def prepare(self, pod: PodClass, handle: Handle) -> TaintAnswers:
        return TaintAnswers(pod.tolerations)

    def feasible(self, state: TaintAnswers, nodes: Columns, rows: Rows) -> Bools:
        ids = nodes.taints[rows]
        state.catch_up(nodes.interns)
        return state.allowed[ids]

    def score(self, state: TaintAnswers, nodes: Columns, rows: Rows) -> Ints:
        ids = nodes.taints[rows]
        state.catch_up(nodes.interns)
        return state.untolerated[ids]

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(
                ClusterEvent(Resource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_TAINT),
                _now_tolerated,
                ByKeys(_BY_CLASS, _nobody_if_as_before, once=True),
            ),
            ClusterEventWithHint(
                ClusterEvent(Resource.TARGET_POD, ActionType.UPDATE_POD_TOLERATION), _own_toleration, own_pod
            ),
        )


def _nobody_if_as_before(event: ClusterEvent, old: NodeInfo | None, new: NodeInfo) -> AllPods | tuple[Key, ...]:
    """Return no keys for a cordon, which is reported as an event of taints without changing them."""
    return () if old is not None and old.taints == new.taints else ALL_PODS


#: Asks once per class whether a node's taints are tolerated.
_BY_CLASS = PodIndex(keys_of=lambda pod: (), shared=lambda pod: pod.cls)


def _now_tolerated(pod: object, old: object | None, new: object | None) -> QueueingHint:
    assert isinstance(pod, PodInfo) and isinstance(new, NodeInfo)
    was = isinstance(old, NodeInfo) and schedulable(old.taints, pod.tolerations)
    return QueueingHint.QUEUE if not was and schedulable(new.taints, pod.tolerations) else QueueingHint.SKIP


def _own_toleration(pod: object, old: object | None, new: object | None) -> QueueingHint:
    assert isinstance(pod, PodInfo) and isinstance(new, PodInfo)
    return QueueingHint.QUEUE if new.uid == pod.uid else QueueingHint.SKIP
