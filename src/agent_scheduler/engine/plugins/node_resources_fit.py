"""NodeResourcesFit: refuses nodes without room, and ranks by how full a node gets.

Rooms are exact integers; a pod counts as one unit of the resource `pods`. Formulas are those of kube-scheduler's
`noderesources` (`least_allocated.go`, `most_allocated.go`): integer division at both steps, CPU and memory with
the default for containers that ask for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..columns import CPU, MEMORY, Bools, Columns, Interns, Ints, Rows
from ..framework import MAX_NODE_SCORE, Depends
from ..nodeinfo import NodeInfo
from ..podclass import PODS, PodClass
from ..podinfo import PodInfo
from ..queueing.events import ActionType, ClusterEvent, Resource
from ..queueing.hints import ClusterEventWithHint, QueueingHint


def insufficient(resource: str) -> str:
    """kube-scheduler's reason."""
    return "Too many pods" if resource == PODS else f"Insufficient {resource}"


class NodeResourcesFit:
    name = "NodeResourcesFit"
    depends = Depends.USAGE

    def prepare(self, pod: PodClass, interns: Interns) -> tuple[tuple[str, int], ...]:
        return tuple(pod.requests.items())

    def feasible(self, state: tuple[tuple[str, int], ...], nodes: Columns, rows: Rows) -> Bools:
        mask = np.ones(rows.shape[0], dtype=np.bool_)
        for resource, amount in state:
            mask &= self._room(resource, nodes, rows) >= amount
        return mask

    def reasons(self, state: tuple[tuple[str, int], ...], nodes: Columns, rows: Rows) -> Mapping[str, int]:
        counts = {
            insufficient(resource): int(np.count_nonzero(self._room(resource, nodes, rows) < amount))
            for resource, amount in state
        }
        return {reason: count for reason, count in counts.items() if count}

    @staticmethod
    def _room(resource: str, nodes: Columns, rows: Rows) -> Ints:
        """What is left of `resource`, by row; nothing of one that no node has. May be negative."""
        index = nodes.interns.resources.get(resource)
        if index is None or index >= nodes.allocatable.shape[0]:
            return np.zeros(rows.shape[0], dtype=np.int64)
        room: Ints = nodes.allocatable[index, rows] - nodes.requested[index, rows]
        return room

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(ClusterEvent(Resource.ASSIGNED_POD, ActionType.DELETE), None),
            ClusterEventWithHint(ClusterEvent(Resource.POD, ActionType.UPDATE_POD_SCALE_DOWN), _scaled_down),
            ClusterEventWithHint(
                ClusterEvent(Resource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE), _more_room
            ),
        )


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


def _more_room(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """The pod fits the node when empty, and the node is new or offers more of something that is wanted."""
    assert isinstance(pod, PodInfo) and isinstance(new, NodeInfo)
    offered = new.allocatable
    if any(amount > offered.get(resource, 0) for resource, amount in pod.requests.items()):
        return QueueingHint.SKIP
    if not isinstance(old, NodeInfo):
        return QueueingHint.QUEUE
    before = old.allocatable
    more = any(offered.get(resource, 0) > before.get(resource, 0) for resource in pod.requests)
    return QueueingHint.QUEUE if more else QueueingHint.SKIP


class _Allocation:
    """Common part of the strategies: a weighted mean over resources of what `_rate` gives."""

    name = "NodeResourcesFit"
    depends = Depends.USAGE
    normalize = None

    def __init__(self, resources: Mapping[str, int] | None = None) -> None:
        #: Resource -> weight. An extended resource counts only for pods that ask for it.
        self.resources = dict(resources or {"cpu": 1, "memory": 1})

    def prepare(self, pod: PodClass, interns: Interns) -> tuple[tuple[str, int, int], ...] | None:
        wanted = []
        for resource, weight in self.resources.items():
            amount = {"cpu": pod.nonzero[0], "memory": pod.nonzero[1]}.get(
                resource, pod.requests.get(resource, 0)
            )
            if amount or resource in ("cpu", "memory"):
                wanted.append((resource, weight, amount))
        return tuple(wanted) or None

    def score(self, state: tuple[tuple[str, int, int], ...], nodes: Columns, rows: Rows) -> Ints:
        total: Ints = np.zeros(rows.shape[0], dtype=np.int64)
        weights: Ints = np.zeros(rows.shape[0], dtype=np.int64)
        for resource, weight, amount in state:
            index = nodes.interns.resources.get(resource)
            if index is None or index >= nodes.allocatable.shape[0]:
                continue
            offered = nodes.allocatable[index, rows]
            taken = nodes.nonzero[index, rows] if index in (CPU, MEMORY) else nodes.requested[index, rows]
            has = offered > 0
            total += weight * self._rate(taken + amount, np.maximum(offered, 1)) * has
            weights += weight * has
        mean: Ints = total // np.maximum(weights, 1)
        return mean

    @staticmethod
    def _rate(requested: Ints, offered: Ints) -> Ints:
        raise NotImplementedError


class LeastAllocated(_Allocation):
    """Prefers empty nodes: spreads."""

    @staticmethod
    def _rate(requested: Ints, offered: Ints) -> Ints:
        rate: Ints = np.maximum(offered - requested, 0) * MAX_NODE_SCORE // offered
        return rate


class MostAllocated(_Allocation):
    """Prefers full nodes: packs, so that large pods still find a whole one."""

    @staticmethod
    def _rate(requested: Ints, offered: Ints) -> Ints:
        rate: Ints = np.minimum(requested, offered) * MAX_NODE_SCORE // offered
        return rate
