"""The rows at the head of an order: by falling score, and among equals by distance from an offset, upwards and wrapping
around. They are kept sorted, so that a score that changes moves one row."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

import numpy as np

from ..state.columns import Ints, Rows

#: Below every score: what a row that is refused has in its place.
REFUSED: Final = -(2**63)

#: Offsets whose heads are kept, as each costs a step for every score that changes: one for each worker, as a rule.
HEADS_KEPT: Final = 32

# A row's key is its distance from the offset less so many times its score: what is less is better.
SHIFT: Final = 32
DISTANCE: Final = (1 << SHIFT) - 1

#: Above the key of every row that is not refused, and below those of all that are.
_ALL: Final = 1 << (SHIFT + 62)


def best_of(scores: Ints, count: int, offset: int) -> list[int]:
    """The first `count` rows of the order, or fewer. `scores` is afterwards as it was."""
    if not 0 <= offset < scores.shape[0]:
        offset = 0
    near, far = scores[offset:], scores[:offset]
    chosen: list[tuple[int, int]] = []
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
    return [row for row, _ in chosen]


class Head:
    """The first rows of the order from one offset. Invariant: `keys` are, sorted, all that are at most `last`."""

    __slots__ = ("_most", "_offset", "_size", "keys", "last")

    def __init__(self, offset: int, size: int, most: int) -> None:
        """`most`: rows to begin with."""
        self._offset = offset
        self._size = size
        self._most = most
        self.keys: list[int] = []
        #: `_ALL` where there are no rows but those of the head.
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

    def first(self, count: int, scores: Ints) -> list[int]:
        """The first `count` rows, or fewer. Of `scores` those of the rows in use are read."""
        keys = self.keys[:count]
        if len(keys) < count:
            keys = self.keys_of(count, scores)
        offset, size = self._offset, self._size
        if not offset:
            return [key & DISTANCE for key in keys]
        return [((key & DISTANCE) + offset) % size for key in keys]

    def keys_of(self, count: int, scores: Ints) -> list[int]:
        """The keys of the first `count` rows, or of fewer."""
        if len(self.keys) < count and self.last != _ALL:
            self._fill(max(count, self._most), scores)
        return self.keys[:count]

    def _rows(self, scores: Ints) -> Rows:
        """Those among which the first are sought: all that are not refused."""
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
        """The first `most` of more rows."""
        values = scores[rows]
        least = np.partition(values, values.shape[0] - most)[values.shape[0] - most]
        better, equal = rows[values > least], rows[values == least]
        wrapped = int(equal.searchsorted(self._offset))
        nearest = np.concatenate((equal[wrapped:], equal[:wrapped]))[: most - better.shape[0]]
        return np.concatenate((better, nearest))
