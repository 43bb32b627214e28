"""The strategies by which NodeResourcesFit ranks nodes: by how full they are with the pod.

Formulas are those of kube-scheduler's `noderesources` (`least_allocated.go`, `most_allocated.go`,
`requested_to_capacity_ratio.go`): integer division at both steps, CPU and memory with the default for containers
that ask for nothing. A node that does not offer a resource is judged by the others alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..framework.plugin import MAX_NODE_SCORE, Depends
from ..rules.curve import FULL, rates_of
from ..rules.device_backed import ByFullness
from ..rules.wanted import Wanted
from ..state.columns import CPU, MEMORY, Bools, Columns, Ints, Rows
from ..state.podclass import PODS, PodClass


class _Allocation(ByFullness):
    """Common part of the strategies: a weighted mean over resources of what `_rate` gives."""

    name = "NodeResourcesFit"
    depends = Depends.ROOM
    normalize = None

    def __init__(self, resources: Mapping[str, int] | None = None) -> None:
        #: Resource -> weight. Extended resources and huge pages count only for pods that ask for them.
        self.resources = dict(resources or {"cpu": 1, "memory": 1})
        super().__init__(self.resources)

    def state_of(self, pod: PodClass) -> Wanted | None:
        counted = {"ephemeral-storage": 0, **pod.requests}
        counted |= {"cpu": pod.nonzero[CPU], "memory": pod.nonzero[MEMORY]}
        if pod.by_containers is not None:
            counted = {"ephemeral-storage": 0, "cpu": 0, "memory": 0}
            counted |= {resource: amount for resource, amount in pod.by_containers.items() if amount}
        wanted = [
            (resource, counted[resource], weight)
            for resource, weight in self.resources.items()
            if resource in counted and resource != PODS
        ]
        return Wanted(wanted) if wanted else None

    def score(self, state: Wanted, nodes: Columns, rows: Rows) -> Ints:
        total: Ints = np.zeros(rows.shape[0], dtype=np.int64)
        # A plain number for as long as all nodes offer all that was looked at, which divides sooner.
        weights: Ints | int = 0
        for index, amount, weight in state.resolve(nodes).each:
            offered = nodes.allocatable[index][rows]
            rates = self._rate(nodes.scored[index][rows] + amount, np.maximum(offered, 1))
            counts = self._counts(rates, offered)
            counted = weight if counts.all() else weight * counts
            total += rates * counted
            weights = weights + counted
        return self._mean(total, np.maximum(weights, 1))

    def score_row(self, state: Wanted, nodes: Columns, row: int) -> int:
        offers, taken, scored = nodes.offers[row], nodes.taken[row], nodes.resources
        if state.known != scored:
            state.resolve(nodes)
        total = weights = 0
        for index, amount, weight in state.each:
            offered = offers[index]
            if offered > 0:
                total += weight * self._rate_one(taken[scored + index] + amount, offered)
                weights += weight
        return total // weights if weights else 0

    def _rate(self, requested: Ints, offered: Ints) -> Ints:
        raise NotImplementedError

    def _rate_one(self, requested: int, offered: int) -> int:
        raise NotImplementedError

    @staticmethod
    def _counts(rates: Ints, offered: Ints) -> Bools:
        """[row] whether a resource has a part in the mean."""
        return offered > 0

    @staticmethod
    def _mean(total: Ints, weights: Ints | int) -> Ints:
        mean: Ints = total // weights
        return mean


class LeastAllocated(_Allocation):
    """Prefers empty nodes: spreads."""

    def _rate(self, requested: Ints, offered: Ints) -> Ints:
        rate: Ints = np.maximum(offered - requested, 0) * MAX_NODE_SCORE // offered
        return rate

    def _rate_one(self, requested: int, offered: int) -> int:
        return (offered - requested) * MAX_NODE_SCORE // offered if requested < offered else 0


class MostAllocated(_Allocation):
    """Prefers full nodes: packs, so that large pods still find a whole one."""

    def _rate(self, requested: Ints, offered: Ints) -> Ints:
        rate: Ints = np.minimum(requested, offered) * MAX_NODE_SCORE // offered
        return rate

    def _rate_one(self, requested: int, offered: int) -> int:
        return requested * MAX_NODE_SCORE // offered if requested < offered else MAX_NODE_SCORE


class RequestedToCapacityRatio(_Allocation):
    """Prefers nodes by a curve over their utilisation, in percent.

    Unlike in the other strategies, a resource that rates 0 is left out of the mean, and the mean is rounded.
    """

    def __init__(self, shape: Sequence[tuple[int, int]], resources: Mapping[str, int] | None = None) -> None:
        """`shape`: (utilisation, score from 0 to 10), by rising utilisation."""
        super().__init__(resources)
        #: [utilisation] what it rates.
        self._curve: tuple[int, ...] = rates_of(shape)
        self._rates: Ints = np.array(self._curve, dtype=np.int64)

    def score_row(self, state: Wanted, nodes: Columns, row: int) -> int:
        offers, taken, scored = nodes.offers[row], nodes.taken[row], nodes.resources
        if state.known != scored:
            state.resolve(nodes)
        total = weights = 0
        for index, amount, weight in state.each:
            offered = offers[index]
            if offered > 0 and (rate := self._rate_one(taken[scored + index] + amount, offered)):
                total += weight * rate
                weights += weight
        return (2 * total + weights) // (2 * weights) if weights else 0

    def _rate(self, requested: Ints, offered: Ints) -> Ints:
        return self._rates[np.minimum(requested, offered) * FULL // offered]

    def _rate_one(self, requested: int, offered: int) -> int:
        return self._curve[min(requested, offered) * FULL // offered]

    @staticmethod
    def _counts(rates: Ints, offered: Ints) -> Bools:
        return (offered > 0) & (rates > 0)

    @staticmethod
    def _mean(total: Ints, weights: Ints | int) -> Ints:
        mean: Ints = (2 * total + weights) // (2 * weights)
        return mean
