"""Equivalence classes of rows by facets: the numbers from which a plugin computes its answer for a row.

A bind changes the answers of a plugin that depends on the cluster for all rows of a domain equally. Such plugins are
therefore asked about one row of each class, and the answer is added to the class's first rows, which are kept sorted
like those of all rows (`ranking.Head`). The chosen rows equal those of a scan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from ..state.columns import Ints, Rows
from .ranking import DISTANCE, HEADS_KEPT, REFUSED, SHIFT, Head, ScoredRow

#: The most classes. With more of them a scan is as cheap.
_MOST: Final = 64

#: Replaces a row.
_NONE: Final = -1

#: Up to this number changed rows are sorted in one by one. With more of them the classes are rebuilt.
_ONE_BY_ONE: Final = 64

#: The least rows of a class's head, and the rows of all heads of one offset together.
_HEAD_AT_LEAST: Final = 16
_HEADS_TOGETHER: Final = 256

Facets = tuple[Ints, ...]


def distinct(facets: Iterable[Ints]) -> Facets:
    """Return the facets without duplicates, compared by identity."""
    return tuple({id(facet): facet for facet in facets}.values())


class _ClassHead(Head):
    """The first rows of one class in the order from one offset."""

    def __init__(self, of: Rows, number: int, offset: int, size: int, most: int) -> None:
        super().__init__(offset, size, most)
        self._of = of
        self._number = number

    def _rows(self, scores: Ints) -> Rows:
        return _admitted(self._of, self._number, scores)


def _admitted(of: Rows, number: int, scores: Ints) -> Rows:
    """Return the rows of a class that are not refused."""
    rows: Rows = ((of == number) & (scores != REFUSED)).nonzero()[0]
    return rows


class FacetClasses:
    """The classes of the rows of `scores`, a view of a ranking's scores. The ranking reports changes by `change`.

    Invariant, after `sort_in` of all rows whose facets may have changed: rows of one class have equal facets.
    """

    def __init__(self, facets: Facets, scores: Ints) -> None:
        self.facets = facets
        self._scores = scores
        of = np.zeros(scores.shape[0], dtype=np.intp)
        for facet in facets:
            values, places = np.unique(facet[: scores.shape[0]], return_inverse=True)
            of = np.unique(of * values.shape[0] + places, return_inverse=True)[1]
        #: [row] its class. `_of_view` is the same memory, for access to single items.
        self._of: Rows = of
        self._of_view = of.data
        _, examples = np.unique(of, return_index=True)
        #: Facets -> the class of the rows that have them.
        self._numbers = {self._facets_of(row): number for number, row in enumerate(examples.tolist())}
        #: [class] the number of its rows that are not refused.
        self._sizes: list[int] = np.bincount(of[scores != REFUSED], minlength=examples.shape[0]).tolist()
        #: [class] a row of it that was not refused when it was chosen, or `_NONE`.
        self._example = [_NONE] * len(self._sizes)
        #: The examples of classes with rows that are not refused; None if they have to be gathered again.
        self._examples: Rows | None = None
        self._heads: dict[int, dict[int, Head]] = {}
        self._most = max(_HEAD_AT_LEAST, _HEADS_TOGETHER // max(1, len(self._sizes)))

    @property
    def are_many(self) -> bool:
        """Whether the number of classes is so high that a scan is as cheap."""
        return len(self._sizes) > _MOST

    def _facets_of(self, row: int) -> tuple[int, ...]:
        return tuple([facet.item(row) for facet in self.facets])

    def change(self, row: int, old: int, new: int) -> None:
        """Handle the change of the score of `row` from `old` to `new`."""
        number, sizes = self._of_view[row], self._sizes
        if old == REFUSED:
            sizes[number] += 1
            if sizes[number] == 1:
                self._examples = None
        if new == REFUSED:
            sizes[number] -= 1
            if not sizes[number]:
                self._examples = None
        for heads in self._heads.values():
            head = heads.get(number)
            if head is not None:
                head.move(row, old, new)

    def sort_in(self, rows: Sequence[int]) -> bool:
        """Move `rows` to the classes of their current facets. Return false if the classes have to be rebuilt."""
        if len(rows) > _ONE_BY_ONE:
            return False
        for row in rows:
            key = self._facets_of(row)
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = len(self._sizes)
                self._sizes.append(0)
                self._example.append(_NONE)
            old = self._of_view[row]
            if number != old:
                if self._example[old] == row:
                    self._example[old], self._examples = _NONE, None
                score = self._scores.item(row)
                self.change(row, score, REFUSED)
                self._of_view[row] = number
                self.change(row, REFUSED, score)
        return len(self._sizes) <= _MOST

    def sizes(self, rows: Rows) -> Ints:
        """Return for each of `rows` the number of rows in its class that are not refused."""
        return np.array([self._sizes[self._of_view[row]] for row in rows.tolist()], dtype=np.int64)

    def examples(self) -> Rows:
        """Return a row of each class with rows that are not refused. Usually the same array as before; read only."""
        if self._examples is None:
            example, found = self._example, []
            for number, size in enumerate(self._sizes):
                if size:
                    if example[number] == _NONE:
                        # Chosen rows change their classes, and the last rows are usually chosen last.
                        example[number] = _admitted(self._of, number, self._scores).item(-1)
                    found.append(example[number])
            self._examples = np.array(found, dtype=np.intp)
        return self._examples

    def best(self, count: int, offset: int, examples: Rows, more: Ints) -> Sequence[ScoredRow]:
        """Return the first `count` rows of the order among the classes of the `examples`.

        `more` has for each example the number that is added to the score of every row of its class.
        """
        scores, size = self._scores, self._scores.shape[0]
        if not 0 <= offset < size:
            offset = 0
        heads = self._heads.get(offset)
        if heads is None:
            if len(self._heads) >= HEADS_KEPT:
                self._heads.clear()
            heads = self._heads[offset] = {}
        firsts: list[tuple[int, int, Head]] = []
        for row, extra in zip(examples.tolist(), more.tolist(), strict=True):
            number = self._of_view[row]
            head = heads.get(number)
            if head is None:
                head = heads[number] = _ClassHead(self._of, number, offset, size, self._most)
            shift = extra << SHIFT
            firsts.append(((head.keys or head.keys_of(1, scores))[0] - shift, shift, head))
        # The best rows of all classes are in the classes with the best first rows. Keys are unique.
        firsts.sort()
        keys = [key - shift for _, shift, head in firsts[:count] for key in head.keys_of(count, scores)]
        keys.sort()
        return [(((key & DISTANCE) + offset) % size, -(key >> SHIFT)) for key in keys[:count]]
