"""The kept scores of all rows, and the first rows of their order.

The order is by falling score, and among equal scores by distance from an offset, upwards and wrapping around. The first
rows for each offset are kept sorted (`Head`): a changed score moves one row, and all rows are read only when a head is
exhausted.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from ..state.columns import Ints, Rows

#: The score of a refused row, below every other score.
REFUSED: Final = -(2**63)

#: Heads that are kept, one per offset; usually one per worker. Each costs a step for every changed score.
HEADS_KEPT: Final = 32

# The key of a row is its distance from the offset minus its shifted score. Lower keys are better.
SHIFT: Final = 32
DISTANCE: Final = (1 << SHIFT) - 1

#: Above the key of every row that is not refused, and below those of all refused rows.
_ALL: Final = 1 << (SHIFT + 62)


#: A row and its score.
ScoredRow = tuple[int, int]


def best_of(scores: Ints, count: int, offset: int) -> list[ScoredRow]:
    """Return the first `count` rows of the order, or fewer. `scores` is restored before the return."""
    if not 0 <= offset < scores.shape[0]:
        offset = 0
    near, far = scores[offset:], scores[:offset]
    chosen: list[ScoredRow] = []
    while len(chosen) < count and near.shape[0]:
        row = int(near.argmax())
        score = near.item(row)
        row += offset
        if offset:
            other = int(far.argmax())
            if far.item(other) > score:
                row, score = other, far.item(other)
        if score == REFUSED:
            break
        chosen.append((row, score))
        scores[row] = REFUSED
    for row, score in chosen:
        scores[row] = score
    return chosen


class Head:
    """The first rows of the order from one offset. Invariant: `keys` has all keys up to `last`, sorted."""

    def __init__(self, offset: int, size: int, most: int) -> None:
        """Create an empty head that is first filled with `most` rows."""
        self._offset = offset
        self._size = size
        self._most = most
        self.keys: list[int] = []
        #: `_ALL` if the head has all rows.
        self.last = -_ALL

    def move(self, row: int, old: int, new: int) -> None:
        distance = row - self._offset
        if distance < 0:
            distance += self._size
        keys = self.keys
        key = distance - (old << SHIFT)
        if key <= self.last:
            del keys[bisect_left(keys, key)]
        key = distance - (new << SHIFT)
        if key <= self.last:
            insort(keys, key)
            if len(keys) > 2 * self._most:
                del keys[self._most :]
                self.last = keys[-1]

    def first(self, count: int, scores: Ints) -> list[ScoredRow]:
        """Return the first `count` rows, or fewer. `scores` is read up to the rows in use."""
        keys = self.keys[:count]
        if len(keys) < count:
            keys = self.keys_of(count, scores)
        offset, size = self._offset, self._size
        if not offset:
            return [(key & DISTANCE, -(key >> SHIFT)) for key in keys]
        return [(((key & DISTANCE) + offset) % size, -(key >> SHIFT)) for key in keys]

    def keys_of(self, count: int, scores: Ints) -> list[int]:
        """Return the keys of the first `count` rows, or of fewer."""
        if len(self.keys) < count and self.last != _ALL:
            self._fill(max(count, self._most), scores)
        return self.keys[:count]

    def _rows(self, scores: Ints) -> Rows:
        """Return the rows among which the first are searched: all that are not refused."""
        return np.flatnonzero(scores != REFUSED)

    def _fill(self, most: int, scores: Ints) -> None:
        offset, size = self._offset, self._size
        scores = scores[:size]
        rows = self._rows(scores)
        self.last = _ALL
        if rows.shape[0] > most:
            rows = self._first_of(rows, most, scores)
            self.last = -_ALL
        self.keys = sorted(
            (row - offset) % size - (score << SHIFT)
            for row, score in zip(rows.tolist(), scores[rows].tolist(), strict=True)
        )
        if self.last != _ALL:
            self.last = self.keys[-1]

    def _first_of(self, rows: Rows, most: int, scores: Ints) -> Rows:
        """Return the first `most` of more rows."""
        values = scores[rows]
        least = np.partition(values, values.shape[0] - most)[values.shape[0] - most]
        better, equal = rows[values > least], rows[values == least]
        wrapped = int(equal.searchsorted(self._offset))
        nearest = np.concatenate((equal[wrapped:], equal[:wrapped]))[: most - better.shape[0]]
        return np.concatenate((better, nearest))


#: The rows of a new head: `_HEAD`, and one more for each `_ROWS_A_PLACE` rows.
_HEAD: Final = 64
_ROWS_A_PLACE: Final = 256

#: Up to this number of scores that change together are moved one by one. With more of them the heads are rebuilt.
_ONE_BY_ONE: Final = 64


class Follower(Protocol):
    """Receives each changed score of a row."""

    def change(self, row: int, old: int, new: int) -> None: ...


class Ranking:
    """The scores of `capacity` rows, all refused at first. The first `size` rows are in use."""

    def __init__(self, capacity: int, size: int = 0) -> None:
        #: [row] its score. Read only.
        self.scores: Ints = np.full(capacity, REFUSED, dtype=np.int64)
        #: The same memory: access to one number through it takes a quarter of the time.
        self._scores_view = self.scores.data
        self.size = size
        self._heads: dict[int, Head] = {}
        self._has_been_asked = False
        #: The rows that are not refused; None if they have to be found again.
        self._admitted: Rows | None = None
        #: It is dropped when all scores change. Set by its owner.
        self.follower: Follower | None = None

    def resize(self, size: int) -> None:
        """Set the number of rows in use."""
        self.size = size
        self._start_over()

    def set(self, row: int, score: int) -> None:
        old = self._scores_view[row]
        if score != old:
            self._scores_view[row] = score
            if old == REFUSED or score == REFUSED:
                self._admitted = None
            for head in self._heads.values():
                head.move(row, old, score)
            if self.follower is not None:
                self.follower.change(row, old, score)

    def set_rows(self, rows: Rows, scores: Ints) -> None:
        """Set the scores of rows, each of which occurs at most once."""
        if self._heads or self.follower is not None:
            changed = np.flatnonzero(self.scores[rows] != scores)
            if changed.shape[0] <= _ONE_BY_ONE:
                for row, score in zip(rows[changed].tolist(), scores[changed].tolist(), strict=True):
                    self.set(row, score)
                return
        self._start_over()
        self.scores[rows] = scores

    def fill(self, scores: Ints) -> None:
        """Set the scores of the first rows, which are all rows in use."""
        self._start_over()
        self.scores[: scores.shape[0]] = scores

    def _start_over(self) -> None:
        self._heads.clear()
        self._has_been_asked = False
        self._admitted = None
        self.follower = None

    def admitted(self) -> Rows:
        """Return the rows that are not refused, in ascending order. Read only."""
        if self._admitted is None:
            self._admitted = np.flatnonzero(self.scores[: self.size] != REFUSED)
        return self._admitted

    def best(self, count: int, offset: int) -> Sequence[ScoredRow]:
        """Return the first `count` rows of the order, or fewer."""
        if not 0 <= offset < self.size:
            offset = 0
        head = self._heads.get(offset)
        if head is None:
            if not self._has_been_asked:
                # Many classes have one pod, for which a head would be used only once.
                self._has_been_asked = True
                return best_of(self.scores[: self.size], count, offset)
            if len(self._heads) >= HEADS_KEPT:
                self._heads.clear()
            most = _HEAD + self.size // _ROWS_A_PLACE
            head = self._heads[offset] = Head(offset, self.size, most)
        return head.first(count, self.scores)
