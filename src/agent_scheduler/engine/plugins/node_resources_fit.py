"""NodeResourcesFit: refuses nodes without room, and ranks by how full a node gets.

Rooms are exact integers; a pod counts as one unit of the resource `pods`. Formulas are those of kube-scheduler's
`noderesources` (`least_allocated.go`, `most_allocated.go`): integer division at both steps, CPU and memory with
the default for containers that ask for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..columns import CPU, MEMORY, Bools, Columns, Ints, Rows
from ..framework import MAX_NODE_SCORE, Depends, Filter, Score
from ..handle import Handle
from ..nodeinfo import NodeInfo
from ..podclass import PODS, PodClass
from ..podinfo import PodInfo
from ..queueing.events import ActionType, ClusterEvent, Resource
from ..queueing.hints import ClusterEventWithHint, QueueingHint


def insufficient(resource: str) -> str:
    """kube-scheduler's reason."""
    return "Too many pods" if resource == PODS else f"Insufficient {resource}"


class Wanted:
    """What a class wants of some resources, as columns: `indices` and `amounts` are [resource, 1].

    Resources get their columns when a node first offers them, so `resolve` looks again when there are more.
    """

    __slots__ = ("_known", "_names", "amounts", "each", "indices", "missing", "resolved", "weights")

    def __init__(self, wanted: Sequence[tuple[str, int, int]]) -> None:
        """`wanted`: (resource, amount, weight)."""
        self._names = tuple(wanted)
        self._known = -1
        #: Names behind the rows of `indices`, and names that no node offers.
        self.resolved: tuple[str, ...] = ()
        self.missing: tuple[str, ...] = ()
        self.indices: Rows = np.zeros((0, 1), dtype=np.intp)
        self.amounts: Ints = np.zeros((0, 1), dtype=np.int64)
        self.weights: Ints = np.zeros((0, 1), dtype=np.int64)
        #: The same as plain numbers, (index, amount, weight), for one row at a time.
        self.each: tuple[tuple[int, int, int], ...] = ()

    def resolve(self, nodes: Columns) -> Wanted:
        columns = nodes.allocatable.shape[0]
        if columns != self._known:
            self._known = columns
            known = {name: index for name, index in nodes.interns.resources.items() if index < columns}
            found = [(known[name], amount, weight) for name, amount, weight in self._names if name in known]
            self.resolved = tuple(name for name, _, _ in self._names if name in known)
            self.missing = tuple(name for name, _, _ in self._names if name not in known)
            self.each = tuple(found)
            table = np.array(found, dtype=np.int64).reshape(-1, 3)
            self.indices = table[:, 0:1].astype(np.intp)
            self.amounts = table[:, 1:2]
            self.weights = table[:, 2:3]
        return self


class NodeResourcesFit(Filter):
    name = "NodeResourcesFit"
    depends = Depends.USAGE

    def prepare(self, pod: PodClass, handle: Handle) -> Wanted:
        return Wanted([(resource, amount, 0) for resource, amount in pod.requests.items()])

    def feasible(self, state: Wanted, nodes: Columns, rows: Rows) -> Bools:
        if state.resolve(nodes).missing:
            return np.zeros(rows.shape[0], dtype=np.bool_)
        mask: Bools = np.logical_and.reduce(self._enough(state, nodes, rows))
        return mask

    def feasible_row(self, state: Wanted, nodes: Columns, row: int) -> bool:
        if state.resolve(nodes).missing:
            return False
        offered, taken = nodes.allocatable.item, nodes.requested.item
        return all(offered(index, row) - taken(index, row) >= amount for index, amount, _ in state.each)

    def reasons(self, state: Wanted, nodes: Columns, rows: Rows) -> Mapping[str, int]:
        enough = self._enough(state.resolve(nodes), nodes, rows)
        counts: dict[str, int] = {insufficient(resource): rows.shape[0] for resource in state.missing}
        for resource, passed in zip(state.resolved, enough, strict=True):
            short = rows.shape[0] - int(np.count_nonzero(passed))
            if short:
                counts[insufficient(resource)] = short
        return counts

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


class _Allocation(Score):
    """Common part of the strategies: a weighted mean over resources of what `_rate` gives."""

    name = "NodeResourcesFit"
    depends = Depends.USAGE
    normalize = None

    def __init__(self, resources: Mapping[str, int] | None = None) -> None:
        #: Resource -> weight. An extended resource counts only for pods that ask for it.
        self.resources = dict(resources or {"cpu": 1, "memory": 1})

    def prepare(self, pod: PodClass, handle: Handle) -> Wanted | None:
        counted = dict(pod.requests) | {"cpu": pod.nonzero[CPU], "memory": pod.nonzero[MEMORY]}
        wanted = [
            (resource, counted[resource], weight)
            for resource, weight in self.resources.items()
            if resource in counted
        ]
        return Wanted(wanted) if wanted else None

    def score(self, state: Wanted, nodes: Columns, rows: Rows) -> Ints:
        state.resolve(nodes)
        offered = nodes.allocatable[state.indices, rows]
        taken = nodes.scored[state.indices, rows] + state.amounts
        # A node that does not offer a resource is judged by the others alone.
        weights = state.weights * (offered > 0)
        rates = self._rate(taken, np.maximum(offered, 1))
        mean: Ints = (rates * weights).sum(axis=0) // np.maximum(weights.sum(axis=0), 1)
        return mean

    def score_row(self, state: Wanted, nodes: Columns, row: int) -> int:
        offers, scored = nodes.allocatable.item, nodes.scored.item
        total = weights = 0
        for index, amount, weight in state.resolve(nodes).each:
            offered = offers(index, row)
            if offered > 0:
                total += weight * self._rate_one(scored(index, row) + amount, offered)
                weights += weight
        return total // weights if weights else 0

    @staticmethod
    def _rate(requested: Ints, offered: Ints) -> Ints:
        raise NotImplementedError

    @staticmethod
    def _rate_one(requested: int, offered: int) -> int:
        raise NotImplementedError


class LeastAllocated(_Allocation):
    """Prefers empty nodes: spreads."""

    @staticmethod
    def _rate(requested: Ints, offered: Ints) -> Ints:
        rate: Ints = np.maximum(offered - requested, 0) * MAX_NODE_SCORE // offered
        return rate

    @staticmethod
    def _rate_one(requested: int, offered: int) -> int:
        return max(offered - requested, 0) * MAX_NODE_SCORE // offered


class MostAllocated(_Allocation):
    """Prefers full nodes: packs, so that large pods still find a whole one."""

    @staticmethod
    def _rate(requested: Ints, offered: Ints) -> Ints:
        rate: Ints = np.minimum(requested, offered) * MAX_NODE_SCORE // offered
        return rate

    @staticmethod
    def _rate_one(requested: int, offered: int) -> int:
        return min(requested, offered) * MAX_NODE_SCORE // offered
