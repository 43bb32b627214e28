"""NodeResourcesBalancedAllocation: prefers nodes on which the pod evens out the use of the resources.

The score rates the change, as in kube-scheduler 1.36 (`balanced_allocation.go`): the evenness of the node with the pod
against that without it, where no change gives 75. Requests are the real ones, without defaults, and pods without
requests are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ..framework.plugin import MAX_NODE_SCORE, Depends
from ..rules.device_backed import ByFullness
from ..state.columns import Bools, Columns, Ints, Rows
from ..state.podclass import PODS, PodClass

Floats = NDArray[np.float64]

_HALF = MAX_NODE_SCORE // 2

#: Counted for every pod, whether requested or not; other resources only for pods that request them.
ALWAYS_COUNTED = ("cpu", "memory", "ephemeral-storage")


class BalancedAllocation(ByFullness):
    name = "NodeResourcesBalancedAllocation"
    depends = Depends.ROOM
    normalize = None

    def __init__(self, resources: Iterable[str] = ()) -> None:
        """Rate these resources, by default CPU and memory."""
        self.resources = tuple(name for name in resources or ("cpu", "memory") if name != PODS)
        super().__init__(self.resources)

    def state_of(self, pod: PodClass) -> tuple[tuple[str, int], ...] | None:
        wanted = tuple(
            (resource, pod.requests.get(resource, 0))
            for resource in self.resources
            if resource in pod.requests or resource in ALWAYS_COUNTED
        )
        return wanted if any(amount for _, amount in wanted) else None

    def score(self, state: tuple[tuple[str, int], ...], nodes: Columns, rows: Rows) -> Ints:
        before, after, counted = [], [], []
        for index, amount in _columns(state, nodes):
            offered = nodes.allocatable[index, rows]
            requested = nodes.requested[index, rows]
            divisor = np.maximum(offered, 1)
            before.append(np.minimum(requested / divisor, 1.0))
            after.append(np.minimum((requested + amount) / divisor, 1.0))
            counted.append(offered > 0)
        if not before:
            return np.full(rows.shape[0], _of_change(0), dtype=np.int64)
        change = _evenness(after, counted) - _evenness(before, counted)
        score: Ints = _HALF + (_HALF + change) // 2
        return score

    def score_row(self, state: tuple[tuple[str, int], ...], nodes: Columns, row: int) -> int:
        offers, taken = nodes.offers[row], nodes.taken[row]
        before, after = [], []
        for index, amount in _columns(state, nodes):
            offered = offers[index]
            if offered > 0:
                requested = taken[index]
                # Arrays divide as floats, too, which matters above 2**53.
                before.append(min(float(requested) / float(offered), 1.0))
                after.append(min(float(requested + amount) / float(offered), 1.0))
        return _of_change(_evenness_of(after) - _evenness_of(before))


def _columns(state: tuple[tuple[str, int], ...], nodes: Columns) -> list[tuple[int, int]]:
    """Return (column, amount) for the resources that some node has offered."""
    columns = nodes.resources
    known = nodes.interns.resources
    return [(known[name], amount) for name, amount in state if known.get(name, columns) < columns]


def _of_change(change: int) -> int:
    return _HALF + (_HALF + change) // 2


def _evenness(fractions: list[Floats], counted: list[Bools]) -> Ints:
    """Return 100 for equal utilizations, falling with their standard deviation.

    Resources that a node does not offer do not count there.
    """
    if len(fractions) == 2:
        deviation = np.abs(fractions[0] - fractions[1]) / 2 * (counted[0] & counted[1])
    else:
        deviation = _deviation(np.stack(fractions), np.stack(counted))
    evenness: Ints = ((1 - deviation) * MAX_NODE_SCORE).astype(np.int64)
    return evenness


def _deviation(fractions: Floats, counted: Bools) -> Floats:
    """Return the deviation of each row of [resource, row].

    For two resources it is half of their difference: the last digit of a double decides the resulting integer.
    """
    count = counted.sum(axis=0)
    highest = np.where(counted, fractions, -np.inf).max(axis=0)
    lowest = np.where(counted, fractions, np.inf).min(axis=0)
    divisor = np.maximum(count, 1)
    mean = (fractions * counted).sum(axis=0) / divisor
    deviation = np.sqrt((np.square(fractions - mean) * counted).sum(axis=0) / divisor)
    found: Floats = np.where(count == 2, (highest - lowest) / 2, np.where(count > 2, deviation, 0.0))
    return found


def _evenness_of(fractions: list[float]) -> int:
    """Return `_evenness` of one row."""
    count = len(fractions)
    deviation = 0.0
    if count == 2:
        deviation = abs(fractions[0] - fractions[1]) / 2
    elif count > 2:
        mean = _added(fractions) / count
        deviation = math.sqrt(_added([(each - mean) * (each - mean) for each in fractions]) / count)
    return int((1 - deviation) * MAX_NODE_SCORE)


def _added(terms: list[float]) -> float:
    """Sum one by one, as arrays and kube-scheduler do; newer Pythons' `sum` corrects the rounding errors of that."""
    total = 0.0
    for term in terms:
        total += term
    return total
