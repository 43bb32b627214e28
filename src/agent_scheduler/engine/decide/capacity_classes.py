"""Equivalence classes of rows by capacity.

Rows of one class offer equal amounts, have equal amounts taken and equal free shares of GPUs, and have the same values
of the labels that tell nodes apart (`Interns.telling_labels`).

Most nodes of a cluster have one of a few sizes, and many have equal pods or none. Plugins that read nothing else of a
row (`Depends.ROOM`) are asked about one row of each class. The classes are shared by all pod classes of a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Final

import numpy as np

from ..state.columns import NODE_NAME, Amounts, Bools, Columns, Ints, Rows
from ..state.gpus import NO_GPUS, Free
from ..state.rowlog import RowLog
from .ranking import REFUSED, ScoredRow

#: The offered amounts, the taken amounts, the free shares of GPUs in ascending order, and the values of labels.
Capacity = tuple[Amounts, Amounts, Free, tuple[str | None, ...]]

#: Replaces the class of rows that were never used.
_NOBODY: Final = -1

#: The rows that are searched first in a class with many rows. Each further step searches four times as many.
_NEAR: Final = 256


class CapacityClasses:
    """The classes of the rows of some columns.

    Invariant, after `refresh`: two rows have the same class if and only if their capacities are equal, and the example
    of a class belongs to it.
    """

    def __init__(self) -> None:
        self._position = -1
        self._shape = (-1, -1)
        self._telling: tuple[str, ...] = ()
        #: [row] its class. `_of_view` is the same memory, for access to single items.
        self.of: Rows = np.zeros(0, dtype=np.intp)
        self._of_view = self.of.data
        self._numbers: dict[Capacity, int] = {}
        #: [class] its amounts. Classes in `_free` have no rows.
        self._keys: list[Capacity] = []
        #: [class] its number of rows. `_count` is the same memory, for access to single items.
        self._counts: Ints = np.zeros(0, dtype=np.int64)
        self._count = self._counts.data
        self._examples: Rows = np.zeros(0, dtype=np.intp)
        #: Classes whose example has moved to another class.
        self._orphans: set[int] = set()
        self._free: list[int] = []

    def refresh(self, columns: Columns, touched: RowLog) -> None:
        """Update the classes of the rows of `columns` that the log `touched` has appended since the last call."""
        rows = touched.since(self._position)
        self._position = touched.end
        shape, telling = (columns.resources, columns.capacity), columns.interns.telling_labels
        if rows is None or shape != self._shape or telling != self._telling:
            self._shape, self._telling = shape, telling
            self._look_at_all(columns)
            return
        for row in rows:
            self._look_at(columns, row)

    def examples(self) -> Rows:
        """Return [class] a row of it, or any row for a class without rows. Valid until the next change."""
        for number in self._orphans:
            self._examples[number] = (self.of == number).argmax()
        self._orphans.clear()
        return self._examples[: len(self._keys)]

    def ask(self, about: Callable[[Rows], Ints]) -> Ints:
        """Return [class] the answer of `about` for a row of it, `REFUSED` for a class without rows."""
        classes, examples = self._there()
        answers = np.full(len(self._keys), REFUSED, dtype=np.int64)
        answers[classes] = about(examples)
        return answers

    def best(
        self, passing: Callable[[Rows], tuple[Rows, Ints]], count: int, offset: int, size: int
    ) -> Sequence[ScoredRow]:
        """Return the first `count` of `size` rows in the order of `ranking`.

        `passing` receives rows and returns the indices of those that pass, with their scores.
        """
        if not 0 <= offset < size:
            offset = 0
        classes, examples = self._there()
        places, scores = passing(examples)
        chosen: list[ScoredRow] = []
        for tied, score in _falling(classes[places], scores):
            chosen += [(row, score) for row in self._first_of(tied, count - len(chosen), offset, size)]
            if len(chosen) == count:
                break
        return chosen

    def _there(self) -> tuple[Rows, Rows]:
        """Return the classes that have rows, and one row of each."""
        examples = self.examples()
        (classes,) = self._counts[: examples.shape[0]].nonzero()
        return classes, examples[classes]

    def _first_of(self, classes: Rows, count: int, offset: int, size: int) -> list[int]:
        """Return the first `count` rows of `classes` from `offset` on, wrapping around."""
        if classes.shape[0] == 1:
            number = classes.item()
            if self._count[number] == 1:
                return [self._examples.item(number)]
            return self._sought(lambda of: of == number, count, offset, size)
        if self._counts[classes].max() == 1:
            rows = np.sort(self._examples[classes])
            place = int(rows.searchsorted(offset))
            found: list[int] = np.concatenate((rows[place:], rows[:place]))[:count].tolist()
            return found
        among = np.zeros(len(self._keys), dtype=np.bool_)
        among[classes] = True
        return self._sought(lambda of: among[of], count, offset, size)

    def _sought(self, are_meant: Callable[[Rows], Bools], count: int, offset: int, size: int) -> list[int]:
        """Return the result of `_first_of` for the rows for which `are_meant` is true of their class."""
        found: list[int] = []
        for start, end in ((offset, size), (0, offset)):
            many = _NEAR
            while start < end and len(found) < count:
                stop = min(start + many, end)
                (near,) = are_meant(self.of[start:stop]).nonzero()
                found += [start + row for row in near[: count - len(found)].tolist()]
                start, many = stop, 4 * many
        return found

    def _values(self, columns: Columns, row: int) -> tuple[str | None, ...]:
        node = columns.nodes[row]
        if node is None:
            return ()
        labels = node.labels
        return tuple([node.name if key == NODE_NAME else labels.get(key) for key in self._telling])

    def _look_at_all(self, columns: Columns) -> None:
        size = columns.size
        classes: dict[Capacity, int] = {}
        self._numbers = classes
        of = [
            classes.setdefault(key, len(classes))
            for key in zip(
                columns.offers[:size],
                columns.taken[:size],
                [_upwards(columns, row) for row in range(size)] if columns.gpus else repeat(NO_GPUS),
                [self._values(columns, row) for row in range(size)] if self._telling else repeat(()),
                strict=False,
            )
        ]
        self.of = np.full(columns.capacity, _NOBODY, dtype=np.intp)
        self.of[:size] = of
        self._of_view = self.of.data
        self._keys = list(classes)
        # A row receives its new class before the old one becomes free.
        self._examples = np.zeros(columns.capacity + 1, dtype=np.intp)
        self._counts = np.bincount(self.of[:size], minlength=columns.capacity + 1)
        self._count = self._counts.data
        self._examples[self.of[:size]] = np.arange(size)
        self._orphans.clear()
        self._free = []

    def _look_at(self, columns: Columns, row: int) -> None:
        free = _upwards(columns, row) if columns.gpus else NO_GPUS
        values = self._values(columns, row) if self._telling else ()
        key = (columns.offers[row], columns.taken[row], free, values)
        old, new = self._of_view[row], self._numbers.get(key)
        if new == old:
            return
        if new is None:
            if self._free:
                new = self._free.pop()
                self._keys[new] = key
            else:
                new = len(self._keys)
                self._keys.append(key)
            self._numbers[key] = new
            self._examples[new] = row
            self._orphans.discard(new)
        self._of_view[row] = new
        self._count[new] += 1
        if old == _NOBODY:
            return
        self._count[old] -= 1
        if not self._count[old]:
            del self._numbers[self._keys[old]]
            self._free.append(old)
        elif self._examples[old] == row:
            self._orphans.add(old)


def _upwards(columns: Columns, row: int) -> Free:
    return tuple(sorted(columns.gpus.get(row, NO_GPUS)))


def _falling(classes: Rows, scores: Ints) -> Iterator[tuple[Rows, int]]:
    """Yield the classes with the best score and this score, then those with the next, and so on."""
    while classes.shape[0] > 1:
        best = scores.item(scores.argmax())
        tied = scores == best
        yield classes[tied], best
        others = ~tied
        classes, scores = classes[others], scores[others]
    if classes.shape[0]:
        yield classes, scores.item()
