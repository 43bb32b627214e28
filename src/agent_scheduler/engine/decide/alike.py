"""Rows that offer the same and have the same taken, found once for all classes that ask about room.

Most nodes of a cluster are of few sizes, and many have the same pods or none. What reads nothing but these amounts
(`Depends.ROOM`) answers for one row of each kind, and all others are told its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from ..state.columns import Amounts, Bools, Columns, Ints, Rows
from ..state.rowlog import RowLog
from .heads import REFUSED

#: What rows that were never used are of.
_NOBODY: Final = -1

#: So many rows are looked at first where a kind has many, and then four times as many each time.
_NEAR: Final = 256


class Alike:
    """The kinds of rows of some columns. Invariant: after `refresh`, rows are of one kind just if offers and what is
    taken are the same, and the example of a kind is of it."""

    __slots__ = (
        "_cells",
        "_count",
        "_counts",
        "_examples",
        "_free",
        "_keys",
        "_kinds",
        "_orphans",
        "_position",
        "_shape",
        "of",
    )

    def __init__(self) -> None:
        self._position = -1
        self._shape = (-1, -1)
        #: [row] its kind; the same memory as `_cells`, which are read and written one by one.
        self.of: Rows = np.zeros(0, dtype=np.intp)
        self._cells = self.of.data
        self._kinds: dict[tuple[Amounts, Amounts], int] = {}
        #: [kind] of which the following is kept; those in `_free` have no rows.
        self._keys: list[tuple[Amounts, Amounts]] = []
        #: [kind] how many rows are of it; the same memory as `_count`.
        self._counts: Ints = np.zeros(0, dtype=np.int64)
        self._count = self._counts.data
        self._examples: Rows = np.zeros(0, dtype=np.intp)
        #: Kinds whose example has become of another kind.
        self._orphans: set[int] = set()
        self._free: list[int] = []

    def refresh(self, columns: Columns, touched: RowLog) -> None:
        """`touched`: rows of `columns` as they changed."""
        rows = touched.since(self._position)
        self._position = touched.end
        shape = (columns.resources, columns.capacity)
        if rows is None or shape != self._shape:
            self._shape = shape
            self._look_at_all(columns)
            return
        for row in rows:
            self._look_at(columns, row)

    def examples(self) -> Rows:
        """[kind] a row of it; a kind that there is no more has any row. To be read at once."""
        for kind in self._orphans:
            self._examples[kind] = (self.of == kind).argmax()
        self._orphans.clear()
        return self._examples[: len(self._keys)]

    def ask(self, about: Callable[[Rows], Ints]) -> Ints:
        """[kind] what `about` says of a row of it; `REFUSED` of a kind that there is no more."""
        kinds, examples = self._there()
        answers = np.full(len(self._keys), REFUSED, dtype=np.int64)
        answers[kinds] = about(examples)
        return answers

    def best(
        self, passing: Callable[[Rows], tuple[Rows, Ints]], count: int, offset: int, size: int
    ) -> Sequence[int]:
        """The first `count` of `size` rows in the order of `ranking`. `passing` says which of the rows that it is
        given, by their places, have which score."""
        if not 0 <= offset < size:
            offset = 0
        kinds, examples = self._there()
        places, scores = passing(examples)
        chosen: list[int] = []
        for tied in _falling(kinds[places], scores):
            chosen += self._first_of(tied, count - len(chosen), offset, size)
            if len(chosen) == count:
                break
        return chosen

    def _there(self) -> tuple[Rows, Rows]:
        """The kinds that have rows, and one of each."""
        examples = self.examples()
        (kinds,) = self._counts[: examples.shape[0]].nonzero()
        return kinds, examples[kinds]

    def _first_of(self, kinds: Rows, count: int, offset: int, size: int) -> list[int]:
        """The first `count` rows of `kinds` from `offset` on, wrapping around."""
        if kinds.shape[0] == 1:
            kind = kinds.item()
            if self._count[kind] == 1:
                return [self._examples.item(kind)]
            return self._sought(lambda of: of == kind, count, offset, size)
        if self._counts[kinds].max() == 1:
            rows = np.sort(self._examples[kinds])
            place = int(rows.searchsorted(offset))
            found: list[int] = np.concatenate((rows[place:], rows[:place]))[:count].tolist()
            return found
        among = np.zeros(len(self._keys), dtype=np.bool_)
        among[kinds] = True
        return self._sought(lambda of: among[of], count, offset, size)

    def _sought(self, are_meant: Callable[[Rows], Bools], count: int, offset: int, size: int) -> list[int]:
        """`_first_of` for the kinds that are meant."""
        found: list[int] = []
        for start, end in ((offset, size), (0, offset)):
            many = _NEAR
            while start < end and len(found) < count:
                stop = min(start + many, end)
                (near,) = are_meant(self.of[start:stop]).nonzero()
                found += [start + row for row in near[: count - len(found)].tolist()]
                start, many = stop, 4 * many
        return found

    def _look_at_all(self, columns: Columns) -> None:
        size = columns.size
        kinds: dict[tuple[Amounts, Amounts], int] = {}
        self._kinds = kinds
        of = [
            kinds.setdefault(key, len(kinds))
            for key in zip(columns.offers[:size], columns.taken[:size], strict=True)
        ]
        self.of = np.full(columns.capacity, _NOBODY, dtype=np.intp)
        self.of[:size] = of
        self._cells = self.of.data
        self._keys = list(kinds)
        # A row is given its new kind before the one that it had is free again.
        self._examples = np.zeros(columns.capacity + 1, dtype=np.intp)
        self._counts = np.bincount(self.of[:size], minlength=columns.capacity + 1)
        self._count = self._counts.data
        self._examples[self.of[:size]] = np.arange(size)
        self._orphans.clear()
        self._free = []

    def _look_at(self, columns: Columns, row: int) -> None:
        key = (columns.offers[row], columns.taken[row])
        old, new = self._cells[row], self._kinds.get(key)
        if new == old:
            return
        if new is None:
            if self._free:
                new = self._free.pop()
                self._keys[new] = key
            else:
                new = len(self._keys)
                self._keys.append(key)
            self._kinds[key] = new
            self._examples[new] = row
            self._orphans.discard(new)
        self._cells[row] = new
        self._count[new] += 1
        if old == _NOBODY:
            return
        self._count[old] -= 1
        if not self._count[old]:
            del self._kinds[self._keys[old]]
            self._free.append(old)
        elif self._examples[old] == row:
            self._orphans.add(old)


def _falling(kinds: Rows, scores: Ints) -> Iterator[Rows]:
    """Those with the best score, those with the next, and so on."""
    while kinds.shape[0] > 1:
        tied = scores == scores[scores.argmax()]
        yield kinds[tied]
        others = ~tied
        kinds, scores = kinds[others], scores[others]
    if kinds.shape[0]:
        yield kinds
