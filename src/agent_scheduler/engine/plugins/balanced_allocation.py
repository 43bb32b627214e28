"""NodeResourcesBalancedAllocation: prefers nodes on which the pod evens out the use of the resources.

The score is of the change, as kube-scheduler 1.35 and later compute it: half of 100 for no change, more when
the spread of utilisations falls. Pods that ask for nothing are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..columns import Columns, Ints, Rows
from ..framework import MAX_NODE_SCORE, Depends, Score
from ..handle import Handle
from ..podclass import PodClass

Floats = NDArray[np.float64]


class BalancedAllocation(Score):
    name = "NodeResourcesBalancedAllocation"
    depends = Depends.USAGE
    normalize = None

    def __init__(self, resources: Mapping[str, int] | None = None) -> None:
        self.resources = tuple(resources or ("cpu", "memory"))

    def prepare(self, pod: PodClass, handle: Handle) -> tuple[tuple[str, int], ...] | None:
        wanted = tuple((resource, pod.requests.get(resource, 0)) for resource in self.resources)
        return wanted if any(amount for _, amount in wanted) else None

    def score(self, state: tuple[tuple[str, int], ...], nodes: Columns, rows: Rows) -> Ints:
        before, after, counted = [], [], []
        for resource, amount in state:
            index = nodes.interns.resources.get(resource)
            if index is None or index >= nodes.allocatable.shape[0]:
                continue
            offered = nodes.allocatable[index, rows]
            requested = nodes.requested[index, rows]
            divisor = np.maximum(offered, 1)
            before.append(np.minimum(requested / divisor, 1.0))
            after.append(np.minimum((requested + amount) / divisor, 1.0))
            counted.append(offered > 0)
        if not before:
            return np.zeros(rows.shape[0], dtype=np.int64)
        present = np.stack(counted)
        without = _balance(np.stack(before), present)
        with_pod = _balance(np.stack(after), present)
        half = MAX_NODE_SCORE // 2
        # Go converts each balance to an integer before it compares them, and divides towards zero.
        change = with_pod - without
        score: Ints = half + np.trunc((half + change) / 2).astype(np.int64)
        return score


def _balance(fractions: Floats, present: NDArray[np.bool_]) -> Ints:
    """100 where all utilisations are equal, falling with their standard deviation; [resource, row]."""
    count = np.maximum(present.sum(axis=0), 1)
    mean = (fractions * present).sum(axis=0) / count
    deviation = np.sqrt((((fractions - mean) ** 2) * present).sum(axis=0) / count)
    balance: Ints = ((1 - deviation) * MAX_NODE_SCORE).astype(np.int64)
    return balance
