"""NodeResourcesFit: refuses nodes without room.

Rooms are exact integers; a pod counts as one unit of the resource `pods`. How full a node gets ranks it in
`node_resources_fit_score`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from agent_scheduler.objects.quantity import text_of

from ..columns import BASE_RESOURCES, Bools, Columns, Rows
from ..framework import Depends, Filter
from ..handle import Handle
from ..nodeinfo import NodeInfo
from ..podclass import PODS, PodClass
from ..podinfo import PodInfo
from ..queueing.events import ActionType, ClusterEvent, Resource
from ..queueing.hints import ClusterEventWithHint, QueueingHint
from ..wanted import Wanted

_PODS = BASE_RESOURCES.index(PODS)


def insufficient(resource: str) -> str:
    """kube-scheduler's reason."""
    return "Too many pods" if resource == PODS else f"Insufficient {resource}"


def is_extended(resource: str) -> bool:
    """Whether it is neither Kubernetes' own nor a quota's name."""
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")


class NodeResourcesFit(Filter):
    name = "NodeResourcesFit"
    depends = Depends.USAGE
    reads_amounts_only = True

    def __init__(self, ignored_resources: Iterable[str] = (), ignored_groups: Iterable[str] = ()) -> None:
        """Extended resources that somebody else looks after, by name and by what stands before the slash."""
        self._ignored = frozenset(ignored_resources)
        self._ignored_groups = frozenset(ignored_groups)

    def prepare(self, pod: PodClass, handle: Handle) -> Wanted:
        return Wanted([(resource, amount, 0) for resource, amount in self._wanted(pod)])

    def _wanted(self, pod: PodClass) -> Iterable[tuple[str, int]]:
        if not self._ignored and not self._ignored_groups:
            return pod.requests.items()
        return [each for each in pod.requests.items() if not self._ignores(each[0])]

    def _ignores(self, resource: str) -> bool:
        return is_extended(resource) and (
            resource in self._ignored or resource.partition("/")[0] in self._ignored_groups
        )

    def feasible(self, state: Wanted, nodes: Columns, rows: Rows) -> Bools:
        if state.resolve(nodes).missing:
            return np.zeros(rows.shape[0], dtype=np.bool_)
        mask: Bools = np.logical_and.reduce(self._enough(state, nodes, rows))
        return mask

    def feasible_row(self, state: Wanted, nodes: Columns, row: int) -> bool:
        if state.resolve(nodes).missing:
            return False
        offered, taken = nodes.allocatable.item, nodes.requested.item
        for index, amount, _ in state.each:  # noqa: SIM110 - once a bind
            if offered(index, row) - taken(index, row) < amount:
                return False
        return True

    def reasons(self, state: Wanted, nodes: Columns, rows: Rows) -> Mapping[str, int]:
        enough = self._enough(state.resolve(nodes), nodes, rows)
        counts: dict[str, int] = {insufficient(resource): rows.shape[0] for resource in state.missing}
        for resource, passed in zip(state.resolved, enough, strict=True):
            short = rows.shape[0] - int(np.count_nonzero(passed))
            if short:
                counts[insufficient(resource)] = short
        return counts

    def curable(self, state: Wanted, nodes: Columns, rows: Rows) -> Bools:
        """Others that go make room, but a node gets no larger; the number of pods is never held against it."""
        if state.resolve(nodes).missing:
            return np.zeros(rows.shape[0], dtype=np.bool_)
        offered = nodes.allocatable[state.indices, rows] >= state.amounts
        large_enough: Bools = np.logical_and.reduce(offered | (state.indices == _PODS))
        return large_enough

    def nearest(self, state: Wanted, nodes: Columns, rows: Rows) -> Rows:
        """By the share of what is wanted that is not there, over all resources."""
        state.resolve(nodes)
        room = np.maximum(nodes.allocatable[state.indices, rows] - nodes.requested[state.indices, rows], 0)
        short = np.maximum(state.amounts - room, 0) / np.maximum(state.amounts, 1)
        return rows[np.argsort(short.sum(axis=0), kind="stable")]

    def missing(self, state: Wanted, nodes: Columns, row: int) -> str:
        state.resolve(nodes)
        found = [f"{resource}: no node offers it" for resource in state.missing]
        for resource, (index, amount, _) in zip(state.resolved, state.each, strict=True):
            offered = nodes.allocatable.item(index, row)
            free = offered - nodes.requested.item(index, row)
            if free < amount:
                wanted, left, whole, short = (
                    text_of(resource, each) for each in (amount, max(free, 0), offered, amount - free)
                )
                found.append(f"{resource}: {short} more (wants {wanted}, {left} of {whole} is free)")
        return "; ".join(found)

    @staticmethod
    def _enough(state: Wanted, nodes: Columns, rows: Rows) -> Bools:
        """[resource, row]: whether what is left, which may be negative, is as much as wanted."""
        room = nodes.allocatable[state.indices, rows] - nodes.requested[state.indices, rows]
        enough: Bools = room >= state.amounts
        return enough

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(ClusterEvent(Resource.ASSIGNED_POD, ActionType.DELETE), None),
            ClusterEventWithHint(ClusterEvent(Resource.POD, ActionType.UPDATE_POD_SCALE_DOWN), _scaled_down),
            ClusterEventWithHint(
                ClusterEvent(Resource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE),
                self._more_room,
            ),
        )

    def _more_room(self, pod: object, old: object | None, new: object | None) -> QueueingHint:
        """The pod fits the node when empty, and the node is new or offers more of something that is wanted."""
        assert isinstance(pod, PodInfo) and isinstance(new, NodeInfo)
        offered, wanted = new.allocatable, dict(self._wanted(pod.cls))
        if any(amount > offered.get(resource, 0) for resource, amount in wanted.items()):
            return QueueingHint.SKIP
        if not isinstance(old, NodeInfo):
            return QueueingHint.QUEUE
        before = old.allocatable
        more = any(offered.get(resource, 0) > before.get(resource, 0) for resource in wanted)
        return QueueingHint.QUEUE if more else QueueingHint.SKIP


def _scaled_down(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """Own requests went down, or another pod on a node asks for less of something that this one wants."""
    assert isinstance(pod, PodInfo) and isinstance(old, PodInfo) and isinstance(new, PodInfo)
    if new.uid == pod.uid:
        return QueueingHint.QUEUE
    if not new.node_name:
        return QueueingHint.SKIP
    wanted = pod.requests
    less = any(
        resource in wanted and new.requests.get(resource, 0) < amount
        for resource, amount in old.requests.items()
    )
    return QueueingHint.QUEUE if less else QueueingHint.SKIP
