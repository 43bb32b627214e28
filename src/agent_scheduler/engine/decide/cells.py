"""Rows of which plugins that look at other rows say the same, and which of these are the best of each such cell.

A bind changes what such a plugin says of a whole domain, and with it of thousands of rows; but it says the same of all
rows of a domain, and of all nodes with as many pods. So rows are put into cells by their facets: numbers of which all
that is said of a row is made. Plugins are asked about one row of each cell, and what they say of it is added to the
best rows of the cell, which are kept sorted as those of all rows are (`ranking`). The first rows of the order are then
those that a look at all rows would give.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from ..state.columns import Ints, Rows
from .heads import DISTANCE, HEADS_KEPT, REFUSED, SHIFT, Head

#: Cells beyond which nothing is gained.
_MOST: Final = 64

#: In the place of a row.
_NONE: Final = -1

#: Rows that may change cells one by one; after more the cells are made anew.
_ONE_BY_ONE: Final = 64

#: Rows that a cell's head begins with, and the same for all heads of an offset together.
_HEAD_AT_LEAST: Final = 16
_HEADS_TOGETHER: Final = 256

Facets = tuple[Ints, ...]


def distinct(facets: Iterable[Ints]) -> Facets:
    """Each of them once."""
    return tuple({id(facet): facet for facet in facets}.values())


class _CellHead(Head):
    """The first rows of the order from one offset, of those in one cell."""

    __slots__ = ("_cell", "_of")

    def __init__(self, of: Rows, cell: int, offset: int, size: int, most: int) -> None:
        super().__init__(offset, size, most)
        self._of = of
        self._cell = cell

    def _rows(self, scores: Ints) -> Rows:
        rows: Rows = ((self._of == self._cell) & (scores != REFUSED)).nonzero()[0]
        return rows


class Cells:
    """The cells of `scores`, a view of a ranking's: who changes one of them says so (`change`).

    Invariant, after `sort_in` of all rows whose facets may have changed: rows of one cell have equal facets.
    """

    __slots__ = (
        "_cells",
        "_example",
        "_examples",
        "_heads",
        "_most",
        "_numbers",
        "_of",
        "_scores",
        "_sizes",
        "facets",
    )

    def __init__(self, facets: Facets, scores: Ints) -> None:
        self.facets = facets
        self._scores = scores
        of = np.zeros(scores.shape[0], dtype=np.intp)
        for facet in facets:
            values, places = np.unique(facet[: scores.shape[0]], return_inverse=True)
            of = np.unique(of * values.shape[0] + places, return_inverse=True)[1]
        #: [row] its cell. The same memory as `_cells`, which are read and written one by one.
        self._of: Rows = of
        self._cells = of.data
        _, examples = np.unique(of, return_index=True)
        #: Facets -> the cell of rows that have these.
        self._numbers = {self._kind(row): cell for cell, row in enumerate(examples.tolist())}
        #: [cell] how many of its rows are not refused.
        self._sizes: list[int] = np.bincount(of[scores != REFUSED], minlength=examples.shape[0]).tolist()
        #: [cell] a row of it that was not refused when it was chosen, or `_NONE`.
        self._example = [_NONE] * len(self._sizes)
        #: Those of cells that have rows which are not refused; None where they have to be gathered again.
        self._examples: Rows | None = None
        self._heads: dict[int, dict[int, Head]] = {}
        self._most = max(_HEAD_AT_LEAST, _HEADS_TOGETHER // max(1, len(self._sizes)))

    @property
    def are_many(self) -> bool:
        """Whether to look at all rows is no dearer."""
        return len(self._sizes) > _MOST

    def _kind(self, row: int) -> tuple[int, ...]:
        return tuple([facet.item(row) for facet in self.facets])

    def change(self, row: int, old: int, new: int) -> None:
        """The score of `row` was `old` and is `new`."""
        cell, sizes = self._cells[row], self._sizes
        if old == REFUSED:
            sizes[cell] += 1
            if sizes[cell] == 1:
                self._examples = None
        if new == REFUSED:
            sizes[cell] -= 1
            if not sizes[cell]:
                self._examples = None
        for heads in self._heads.values():
            head = heads.get(cell)
            if head is not None:
                head.move(row, old, new)

    def sort_in(self, rows: Sequence[int]) -> bool:
        """Put `rows` into the cells of the facets that they have now. Returns whether that was worth while."""
        if len(rows) > _ONE_BY_ONE:
            return False
        for row in rows:
            kind = self._kind(row)
            cell = self._numbers.get(kind)
            if cell is None:
                cell = self._numbers[kind] = len(self._sizes)
                self._sizes.append(0)
                self._example.append(_NONE)
            old = self._cells[row]
            if cell != old:
                if self._example[old] == row:
                    self._example[old], self._examples = _NONE, None
                score = self._scores.item(row)
                self.change(row, score, REFUSED)
                self._cells[row] = cell
                self.change(row, REFUSED, score)
        return len(self._sizes) <= _MOST

    def sizes(self, rows: Rows) -> Ints:
        """For each of `rows` how many rows of its cell are not refused."""
        return np.array([self._sizes[self._cells[row]] for row in rows.tolist()], dtype=np.int64)

    def examples(self) -> Rows:
        """A row of each cell that has one which is not refused. Mostly the same array as before; to be read."""
        if self._examples is None:
            example, found = self._example, []
            for cell, size in enumerate(self._sizes):
                if size:
                    if example[cell] == _NONE:
                        # Rows that are chosen change their cells, and the last ones are mostly chosen last.
                        example[cell] = self._admitted(cell).item(-1)
                    found.append(example[cell])
            self._examples = np.array(found, dtype=np.intp)
        return self._examples

    def _admitted(self, cell: int) -> Rows:
        rows: Rows = ((self._of == cell) & (self._scores != REFUSED)).nonzero()[0]
        return rows

    def best(self, count: int, offset: int, examples: Rows, more: Ints) -> Sequence[int]:
        """The first `count` rows of the order, of those in the cells of the `examples`, if each row had so much `more`
        as the example of its cell."""
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
            cell = self._cells[row]
            head = heads.get(cell)
            if head is None:
                head = heads[cell] = _CellHead(self._of, cell, offset, size, self._most)
            shift = extra << SHIFT
            firsts.append(((head.keys or head.keys_of(1, scores))[0] - shift, shift, head))
        # The first rows of all are in the cells whose own first rows are the first. No two rows have the same key.
        firsts.sort()
        keys = [key - shift for _, shift, head in firsts[:count] for key in head.keys_of(count, scores)]
        keys.sort()
        return [((key & DISTANCE) + offset) % size for key in keys[:count]]
