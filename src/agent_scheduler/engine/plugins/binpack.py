"""Binpack: nodes that the pod would fill most come first (Volcano's plugin of that name).

The mean, by weight, of the parts of each resource that would be taken with the pod. A resource that the pod does not
ask for, or that has no weight, does not count; one that a node does not offer counts as nothing. Scores are `PER_POINT`
for each point of Volcano's 0 to 100, as its fractions tell nodes apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from ..framework.handle import Handle
from ..framework.plugin import MAX_NODE_SCORE, Depends, Score
from ..state.columns import Columns, Ints, Rows
from ..state.podclass import PodClass

PER_POINT: Final = 1 << 24


class Asked(NamedTuple):
    """(resource, amount, weight) of what counts, and the sum of the weights."""

    each: tuple[tuple[str, int, int], ...]
    weights: int


class Binpack(Score):
    name = "Binpack"
    depends = Depends.ROOM
    normalize = None

    def __init__(self, weights: Mapping[str, int]) -> None:
        """Resource -> weight."""
        self._weights = dict(weights)

    def prepare(self, pod: PodClass, handle: Handle) -> Asked | None:
        each = tuple(
            (resource, amount, self._weights[resource])
            for resource, amount in pod.requests.items()
            if resource in self._weights
        )
        weights = sum(weight for _, _, weight in each)
        return Asked(each, weights) if weights else None

    def score(self, state: Asked, nodes: Columns, rows: Rows) -> Ints:
        return np.array([self.score_row(state, nodes, row) for row in rows.tolist()], dtype=np.int64)

    def score_row(self, state: Asked, nodes: Columns, row: int) -> int:
        offers, taken = nodes.offers[row], nodes.taken[row]
        known = nodes.interns.resources
        score = 0.0
        for resource, amount, weight in state.each:
            index = known.get(resource, nodes.resources)
            offered = offers[index] if index < nodes.resources else 0
            if not offered or not weight:
                continue
            full = amount + taken[index]
            if full > offered:
                return 0
            # In this order, as the last digit of a double may decide between nodes.
            score += full * weight / offered
        return round(score / state.weights * MAX_NODE_SCORE * PER_POINT)
