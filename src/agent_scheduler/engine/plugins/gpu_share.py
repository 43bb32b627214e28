"""GPUShare: refuses nodes whose GPUs have no room for a share of one, or for the requested number of whole ones.

NodeResourcesFit counts the thousandths of all devices together; this plugin checks each device (`state.gpus`). The
ledger assigns a pod's devices in the step in which it is assumed, and the Binding names them.
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
from ..ledger import Ledger
from ..state.columns import Bools, Columns, Rows
from ..state.gpus import NO_GPUS, RESOURCE, WHOLE, fits, problem_with
from ..state.nodeinfo import NodeInfo
from ..state.podclass import PodClass
from ..state.podinfo import PodInfo

#: Dimension of pods that may preempt: by their priority, the highest first.
_PREEMPTING: Final = "preempting"

REASON = "node(s) didn't have a GPU with enough left"


class GPUShare(Filter):
    name = "GPUShare"
    depends = Depends.ROOM
    reason = REASON

    def __init__(self, ledger: Ledger | None = None) -> None:
        """Create the plugin; hints read `ledger`, and wake more pods without it."""
        self._ledger = ledger

    def seeing(self, ledger: Ledger, devices: Devices, groups: NativeGroups) -> GPUShare:
        return GPUShare(ledger)

    def prepare(self, pod: PodClass, handle: Handle) -> int | None:
        """Return the requested thousandths, None without a request."""
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
        """Return where enough devices would be free after evictions."""
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
        """Return the keys of the pods that `_freed` may queue."""
        if old.cls.gpu or self._ledger is None:
            return ALL_PODS
        return [UpTo(_PREEMPTING, -self._ledger.lowest_priority - 1)]

    def _freed(self, pod: object, old: object | None, new: object | None) -> QueueingHint:
        """Queue pods if the deleted pod had GPUs or may have blocked an eviction.

        A rule about more than one node may have refused the eviction because of it (as in `rules.fit_hints`).
        """
        assert isinstance(pod, PodInfo) and isinstance(old, PodInfo)
        ledger = self._ledger
        may_preempt = pod.preempts and (ledger is None or pod.priority > ledger.lowest_priority)
        return QueueingHint.QUEUE if old.cls.gpu or may_preempt else QueueingHint.SKIP


def _keys_of(pod: PodInfo) -> list[Key]:
    preempting = [Amount(_PREEMPTING, -pod.priority)] if pod.preempts else []
    return [Amount(RESOURCE, max(pod.cls.gpu, WHOLE)), *preempting]


_INDEX: Final = PodIndex(keys_of=_keys_of, shared=lambda pod: (max(pod.cls.gpu, WHOLE), pod.priority, pod.preempts))


def _room(event: ClusterEvent, old: object, new: NodeInfo) -> list[Key]:
    return [UpTo(RESOURCE, new.allocatable.get(RESOURCE, 0))]


def _more_room(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """Queue a pod if the node has the requested number of devices, and is new or has more than before."""
    assert isinstance(pod, PodInfo) and isinstance(new, NodeInfo)
    offered = new.allocatable.get(RESOURCE, 0)
    before = old.allocatable.get(RESOURCE, 0) if isinstance(old, NodeInfo) else 0
    helps = offered > before and offered >= max(pod.cls.gpu, WHOLE)
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP
