"""The kept scores of all rows, and the first rows of their order.

The order is by falling score, and among equals by distance from an offset, upwards and wrapping around. For each offset
the first rows are kept sorted (`heads`): a changed score moves one row, and all rows are read only when a head has run
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..state.columns import Ints, Rows
from .facet_classes import FacetClasses
from .heads import HEADS_KEPT, REFUSED, Head, best_of

#: Rows that a head begins with: so many, and one more for each so many rows there are.
_HEAD: Final = 64
_ROWS_A_PLACE: Final = 256

#: So many scores that change at once are moved one by one; after more the heads are made anew.
_ONE_BY_ONE: Final = 64


class Ranking:
    """The scores of a number of rows, all refused to begin with, of which the first `size` are in use."""

    __slots__ = ("_admitted", "_has_been_asked", "_heads", "_scores_view", "_size", "classes", "scores")

    def __init__(self, capacity: int, size: int = 0) -> None:
        #: [row] its score. To be read.
        self.scores: Ints = np.full(capacity, REFUSED, dtype=np.int64)
        #: The same memory: reading or writing one number through it takes a quarter of the time.
        self._scores_view = self.scores.data
        self._size = size
        self._heads: dict[int, Head] = {}
        self._has_been_asked = False
        #: The rows that are not refused; None where they have to be found again.
        self._admitted: Rows | None = None
        #: Told of each score that changes, and dropped when all do. Set by `selection.ByFacets`.
        self.classes: FacetClasses | None = None

    def resize(self, size: int) -> None:
        """From now on so many rows are in use."""
        if size != self._size:
            self._size = size
            self._start_over()

    def set(self, row: int, score: int) -> None:
        old = self._scores_view[row]
        if score != old:
            self._scores_view[row] = score
            if old == REFUSED or score == REFUSED:
                self._admitted = None
            for head in self._heads.values():
                head.move(row, old, score)
            if self.classes is not None:
                self.classes.change(row, old, score)

    def set_rows(self, rows: Rows, scores: Ints) -> None:
        """Each row at most once."""
        if self._heads or self.classes is not None:
            changed = np.flatnonzero(self.scores[rows] != scores)
            if changed.shape[0] <= _ONE_BY_ONE:
                for row, score in zip(rows[changed].tolist(), scores[changed].tolist(), strict=True):
                    self.set(row, score)
                return
        self._start_over()
        self.scores[rows] = scores

    def fill(self, scores: Ints) -> None:
        """The scores of the first rows, and with them of all that are in use."""
        self._start_over()
        self.scores[: scores.shape[0]] = scores

    def _start_over(self) -> None:
        self._heads.clear()
        self._has_been_asked = False
        self._admitted = None
        self.classes = None

    def admitted(self) -> Rows:
        """The rows that are not refused, upwards. To be read."""
        if self._admitted is None:
            self._admitted = np.flatnonzero(self.scores[: self._size] != REFUSED)
        return self._admitted

    def best(self, count: int, offset: int) -> Sequence[int]:
        """The first `count` rows of the order, or fewer."""
        if not 0 <= offset < self._size:
            offset = 0
        head = self._heads.get(offset)
        if head is None:
            if not self._has_been_asked:
                # Many classes have one pod, which no head would serve twice.
                self._has_been_asked = True
                return best_of(self.scores[: self._size], count, offset)
            if len(self._heads) >= HEADS_KEPT:
                self._heads.clear()
            most = _HEAD + self._size // _ROWS_A_PLACE
            head = self._heads[offset] = Head(offset, self._size, most)
        return head.first(count, self.scores)
