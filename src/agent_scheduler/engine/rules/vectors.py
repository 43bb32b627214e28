"""Scores that compare nodes of different sizes by what is free there, each amount as a fraction of the most that any
node offers: 100 times a number that falls with every amount that is free, cut to a whole one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from ..framework.handle import Handle
from ..framework.plugin import MAX_NODE_SCORE, Depends, Score
from ..state.columns import Columns, Ints, Rows
from ..state.podclass import PodClass

#: So that a sum of fractions which is a whole number in truth is not cut to the one below.
_ROUNDING: Final = 1e-9


class Falling(NamedTuple):
    """`best` less so much for each unit that is free, of each column."""

    best: float
    slopes: tuple[tuple[int, float], ...]


class OfVectors(Score):
    """Common part."""

    depends = Depends.ROOM
    normalize = None

    def __init__(self, weights: Mapping[str, int]) -> None:
        """`weights`: those of the resources that are looked at; one that no node offers is left out."""
        self._weights = dict(weights)

    def prepare(self, pod: PodClass, handle: Handle) -> Falling | None:
        most, columns = handle.largest, handle.interns.resources
        there = {name: weight for name, weight in self._weights.items() if most.get(name)}
        best, slopes, total = 1.0, [], sum(there.values())
        for name, weight in there.items():
            offset, slope = self._of(pod.requests.get(name, 0) / most[name], weight / total)
            best += offset
            slopes.append((columns[name], slope / most[name]))
        return Falling(best, tuple(slopes)) if slopes else None

    def _of(self, asked: float, weight: float) -> tuple[float, float]:
        """What a resource adds to the best score, and takes off it on a node of which all is free. `asked` is a
        fraction of the most, `weight` one of all weights."""
        raise NotImplementedError

    def score(self, state: Falling, nodes: Columns, rows: Rows) -> Ints:
        found = np.full(rows.shape[0], state.best)
        for index, slope in state.slopes:
            found -= slope * (nodes.allocatable[index][rows] - nodes.requested[index][rows])
        scores: Ints = (MAX_NODE_SCORE * np.clip(found, 0.0, 1.0) + _ROUNDING).astype(np.int64)
        return scores

    def score_row(self, state: Falling, nodes: Columns, row: int) -> int:
        found, slopes = state
        offers, taken = nodes.offers[row], nodes.taken[row]
        for index, slope in slopes:
            found -= slope * (offers[index] - taken[index])
        return int(MAX_NODE_SCORE * min(max(found, 0.0), 1.0) + _ROUNDING)
