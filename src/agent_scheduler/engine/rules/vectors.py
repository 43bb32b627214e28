"""Scores that compare nodes of different sizes by their free amounts.

Each amount is a fraction of the largest that any node offers. The score is 100 times a number that falls with every
free amount, truncated to an integer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from ..framework.handle import Handle
from ..framework.plugin import MAX_NODE_SCORE, Depends, Score
from ..state.columns import Columns, Ints, Rows
from ..state.podclass import PodClass

#: Keeps a sum of fractions that is an exact integer from being truncated to the one below.
_ROUNDING: Final = 1e-9


class LinearScore(NamedTuple):
    """`best` minus the slope of each column for each of its free units."""

    best: float
    slopes: tuple[tuple[int, float], ...]
    #: The number of columns of rows that have all of these.
    columns: int


class VectorScore(Score):
    """The common part of the scores."""

    depends = Depends.ROOM
    normalize = None

    def __init__(self, weights: Mapping[str, int]) -> None:
        """Store the weights of the counted resources; one that no node offers is left out."""
        self._weights = dict(weights)

    def prepare(self, pod: PodClass, handle: Handle) -> LinearScore | None:
        most, columns = handle.largest, handle.interns.resources
        there = {name: weight for name, weight in self._weights.items() if most.get(name)}
        best, slopes, total = 1.0, [], sum(there.values())
        for name, weight in there.items():
            offset, slope = self._of(pod.requests.get(name, 0) / most[name], weight / total)
            best += offset
            slopes.append((columns[name], slope / most[name]))
        return LinearScore(best, tuple(slopes), 1 + max(slopes)[0]) if slopes else None

    def _of(self, asked: float, weight: float) -> tuple[float, float]:
        """Return the part of a resource in the best score, and its reduction on a completely free node.

        `asked` is a fraction of the largest amount, `weight` one of all weights.
        """
        raise NotImplementedError

    def score(self, state: LinearScore, nodes: Columns, rows: Rows) -> Ints:
        found, offered, taken = np.full(rows.shape[0], state.best), nodes.allocatable, nodes.requested
        for index, slope in _known(state, nodes):
            found -= slope * (offered[index][rows] - taken[index][rows])
        # Two functions, which on a few rows cost less than `np.clip`.
        scores: Ints = (MAX_NODE_SCORE * np.minimum(np.maximum(found, 0.0), 1.0) + _ROUNDING).astype(np.int64)
        return scores

    def score_row(self, state: LinearScore, nodes: Columns, row: int) -> int:
        found, offers, taken = state.best, nodes.offers[row], nodes.taken[row]
        for index, slope in state.slopes if state.columns <= nodes.resources else _known(state, nodes):
            found -= slope * (offers[index] - taken[index])
        return int(MAX_NODE_SCORE * min(max(found, 0.0), 1.0) + _ROUNDING)


def _known(state: LinearScore, nodes: Columns) -> list[tuple[int, float]]:
    """Return the slopes without resources newer than the rows: none of the rows offers these."""
    return [(index, slope) for index, slope in state.slopes if index < nodes.resources]
