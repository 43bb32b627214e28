"""What a pod asks for and what a node has free, as fractions of the most that any node offers: for scores that compare
nodes of different sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..framework.handle import Handle
from ..framework.plugin import Depends, Score
from ..state.columns import Columns, Ints, Rows
from ..state.podclass import PodClass

Floats = NDArray[np.float64]


class Dimension(NamedTuple):
    """A resource that some node offers. `asked` and `weight` are fractions: of the most, and of all weights."""

    resource: str
    most: int
    asked: float
    weight: float


class OfVectors(Score):
    """Common part: 100 times a fraction, which `_rate` gives, cut to a whole number."""

    depends = Depends.ROOM
    normalize = None

    def __init__(self, weights: Mapping[str, int]) -> None:
        """`weights`: those of the resources that are looked at; one that no node offers is left out."""
        self._weights = dict(weights)

    def prepare(self, pod: PodClass, handle: Handle) -> tuple[Dimension, ...] | None:
        most = handle.largest
        there = {name: weight for name, weight in self._weights.items() if most.get(name)}
        total = sum(there.values())
        return (
            tuple(
                Dimension(name, most[name], pod.requests.get(name, 0) / most[name], weight / total)
                for name, weight in there.items()
            )
            or None
        )

    def score(self, state: tuple[Dimension, ...], nodes: Columns, rows: Rows) -> Ints:
        found = np.zeros(rows.shape[0])
        known = nodes.interns.resources
        for each in state:
            index = known[each.resource]
            free = nodes.allocatable[index][rows] - nodes.requested[index][rows]
            found += self._rate(each, free / each.most)
        return _cut(found)

    def score_row(self, state: tuple[Dimension, ...], nodes: Columns, row: int) -> int:
        known, offers, taken = nodes.interns.resources, nodes.offers[row], nodes.taken[row]
        found = 0.0
        for each in state:
            index = known[each.resource]
            found += self._rate_one(each, (offers[index] - taken[index]) / each.most)
        return int(100.0 * min(max(1.0 - found, 0.0), 1.0) + _ROUNDING)

    def _rate(self, of: Dimension, free: Floats) -> Floats:
        """What a dimension takes off the best score of each row, between 0 and its weight. `free`: fractions."""
        raise NotImplementedError

    def _rate_one(self, of: Dimension, free: float) -> float:
        raise NotImplementedError


#: So that a sum of fractions which is a whole number in truth is not cut to the one below.
_ROUNDING = 1e-9


def _cut(taken_off: Floats) -> Ints:
    return (100.0 * np.clip(1.0 - taken_off, 0.0, 1.0) + _ROUNDING).astype(np.int64)
