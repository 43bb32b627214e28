"""GPUShare: refuses nodes on whose GPUs there is no room for a share of one, or for as many whole ones.

NodeResourcesFit counts the thousandths of all devices together; this looks at each (`state.gpus`). The ledger gives a
pod its devices in the step in which it is assumed, and the Binding tells them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..dra.catalogue import Devices
from ..events.events import ActionType, ClusterEvent, Resource
from ..events.hints import ClusterEventWithHint, QueueingHint
from ..events.prehints import ALL_PODS, AllPods, Amount, ByKeys, Key, PodIndex, UpTo
from ..framework.handle import Handle
from ..framework.plugin import Depends, Filter, PodRejected
from ..gangs.native import NativeGroups
from ..state.columns import Bools, Columns, Rows
from ..state.gpus import NO_GPUS, RESOURCE, WHOLE, fits, problem_with
from ..state.ledger import Ledger
from ..state.nodeinfo import NodeInfo
from ..state.podclass import PodClass
from ..state.podinfo import PodInfo

#: Dimension under which pods that may preempt are filed: by their priority, the highest first.
_PREEMPTING: Final = "preempting"

REASON = "node(s) didn't have a GPU with enough left"


class GPUShare(Filter):
    name = "GPUShare"
    depends = Depends.ROOM
    reason = REASON

    def __init__(self, ledger: Ledger | None = None) -> None:
        """`ledger`: what hints look at; without one they wake more."""
        self._ledger = ledger

    def seeing(self, ledger: Ledger, devices: Devices, groups: NativeGroups) -> GPUShare:
        return GPUShare(ledger)

    def prepare(self, pod: PodClass, handle: Handle) -> int | None:
        """Thousandths."""
        if problem := problem_with(pod.gpu):
            raise PodRejected(problem)
        return pod.gpu or None

    def feasible(self, state: int, nodes: Columns, rows: Rows) -> Bools:
        enough: Bools
        if state < WHOLE:
            enough = nodes.gpu_most[rows] >= state
        else:
            enough = nodes.gpu_whole[rows] >= state // WHOLE
        return enough

    def feasible_row(self, state: int, nodes: Columns, row: int) -> bool:
        return fits(nodes.gpus.get(row, NO_GPUS), state)

    def curable(self, state: int, nodes: Columns, rows: Rows) -> Bools:
        """Where others that go would leave enough devices."""
        index = nodes.interns.resources.get(RESOURCE, nodes.resources)
        if index >= nodes.resources:
            return np.zeros(rows.shape[0], dtype=np.bool_)
        enough: Bools = nodes.allocatable[index][rows] >= max(state, WHOLE)
        return enough

    def missing(self, state: int, nodes: Columns, row: int) -> str:
        free = nodes.gpus.get(row, NO_GPUS)
        left = ", ".join(map(str, free)) or "none"
        wanted = f"{state} on one GPU" if state < WHOLE else f"{state // WHOLE} whole GPUs"
        return f"{RESOURCE}: wants {wanted}; left on each: {left}"

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(
                ClusterEvent(Resource.ASSIGNED_POD, ActionType.DELETE),
                self._freed,
                ByKeys(_INDEX, self._freed_for, once=True),
            ),
            ClusterEventWithHint(
                ClusterEvent(Resource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE),
                _more_room,
                ByKeys(_INDEX, _room, once=True),
            ),
        )

    def _freed_for(self, event: ClusterEvent, old: PodInfo, new: object) -> AllPods | list[Key]:
        """The pre-hint: keys of those whom `_freed` may say yes to."""
        if old.cls.gpu or self._ledger is None:
            return ALL_PODS
        return [UpTo(_PREEMPTING, -self._ledger.lowest_priority - 1)]

    def _freed(self, pod: object, old: object | None, new: object | None) -> QueueingHint:
        """What ended had GPUs; or it may have been in the way of others being evicted, whom a rule about more than one
        node was kept from by it (as `rules.fit_hints`)."""
        assert isinstance(pod, PodInfo) and isinstance(old, PodInfo)
        ledger = self._ledger
        may_preempt = pod.preempts and (ledger is None or pod.priority > ledger.lowest_priority)
        return QueueingHint.QUEUE if old.cls.gpu or may_preempt else QueueingHint.SKIP


def _keys_of(pod: PodInfo) -> list[Key]:
    preempting = [Amount(_PREEMPTING, -pod.priority)] if pod.preempts else []
    return [Amount(RESOURCE, max(pod.cls.gpu, WHOLE)), *preempting]


_INDEX: Final = PodIndex(
    keys_of=_keys_of, shared=lambda pod: (max(pod.cls.gpu, WHOLE), pod.priority, pod.preempts)
)


def _room(event: ClusterEvent, old: object, new: NodeInfo) -> list[Key]:
    return [UpTo(RESOURCE, new.allocatable.get(RESOURCE, 0))]


def _more_room(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """The node has as many devices as are wanted, and is new or has more than before."""
    assert isinstance(pod, PodInfo) and isinstance(new, NodeInfo)
    offered = new.allocatable.get(RESOURCE, 0)
    before = old.allocatable.get(RESOURCE, 0) if isinstance(old, NodeInfo) else 0
    helps = offered > before and offered >= max(pod.cls.gpu, WHOLE)
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP
