"""Binpack: prefers the nodes that the pod would fill most (Volcano's plugin of that name).

The score is the weighted mean of the utilization of each resource with the pod. A resource that the pod does not
request, or without weight, does not count; one that a node does not offer counts as zero. Scores are `PER_POINT` for
each point of Volcano's 0 to 100, because its fractions distinguish nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from ..framework.handle import Handle
from ..framework.plugin import MAX_NODE_SCORE, Depends, Score
from ..state.columns import Columns, Ints, Rows
from ..state.podclass import PodClass

PER_POINT: Final = 1 << 24


class BinpackState(NamedTuple):
    """(resource, amount, weight) of the counted resources, and the factor of a weighted sum."""

    each: tuple[tuple[str, int, int], ...]
    points: float


class Binpack(Score):
    name = "Binpack"
    depends = Depends.ROOM
    normalize = None
    per_point = PER_POINT

    def __init__(self, weights: Mapping[str, int]) -> None:
        #: Resource -> weight.
        self.weights = dict(weights)

    def prepare(self, pod: PodClass, handle: Handle) -> BinpackState | None:
        each = tuple(
            (resource, amount, self.weights[resource])
            for resource, amount in pod.requests.items()
            if self.weights.get(resource)
        )
        weights = sum(weight for _, _, weight in each)
        return BinpackState(each, MAX_NODE_SCORE * PER_POINT / weights) if weights else None

    def score(self, state: BinpackState, nodes: Columns, rows: Rows) -> Ints:
        total = np.zeros(rows.shape[0])
        fits = np.ones(rows.shape[0], dtype=np.bool_)
        for index, amount, weight in _columns(state, nodes):
            offered = nodes.allocatable[index][rows]
            full = nodes.requested[index][rows] + amount
            there = offered > 0
            fits &= (full <= offered) | ~there
            total += np.where(there, full * weight / np.maximum(offered, 1), 0.0)
        score: Ints = np.rint(np.where(fits, total, 0.0) * state.points).astype(np.int64)
        return score

    def score_row(self, state: BinpackState, nodes: Columns, row: int) -> int:
        offers, taken = nodes.offers[row], nodes.taken[row]
        total = 0.0
        for index, amount, weight in _columns(state, nodes):
            offered = offers[index]
            if offered:
                full = amount + taken[index]
                if full > offered:
                    return 0
                total += full * weight / offered
        return round(total * state.points)


def _columns(state: BinpackState, nodes: Columns) -> Iterator[tuple[int, int, int]]:
    """Yield (column, amount, weight) of the resources that any node offers."""
    known, columns = nodes.interns.resources, nodes.resources
    for resource, amount, weight in state.each:
        index = known.get(resource, columns)
        if index < columns:
            yield index, amount, weight
