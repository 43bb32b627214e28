"""Equivalence classes of rows by capacity: equal amounts offered and equal amounts taken, as much free on as many GPUs,
and the same values of the labels that tell nodes apart (`Interns.telling_labels`).

Most nodes of a cluster are of few sizes, and many have the same pods or none. Plugins that read nothing else of a row
(`Depends.ROOM`) are asked about one row of each class. Shared by all pod classes of a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Final

import numpy as np

from ..state.columns import NODE_NAME, Amounts, Bools, Columns, Ints, Rows
from ..state.gpus import NO_GPUS, Free
from ..state.rowlog import RowLog
from .ranking import REFUSED

#: What is offered, what is taken, what GPUs have free, upwards, and the values of labels.
Capacity = tuple[Amounts, Amounts, Free, tuple[str | None, ...]]

#: In the place of a class, for rows that were never used.
_NOBODY: Final = -1

#: Rows that are searched first for those of a class that has many; then four times as many each time.
_NEAR: Final = 256


class CapacityClasses:
    """The classes of the rows of some columns.

    Invariant, after `refresh`: rows are of one class just if their capacities are equal, and the example of a class is
    of it.
    """

    def __init__(self) -> None:
        self._position = -1
        self._shape = (-1, -1)
        self._telling: tuple[str, ...] = ()
        #: [row] its class; the same memory as `_of_view`, which is read and written one by one.
        self.of: Rows = np.zeros(0, dtype=np.intp)
        self._of_view = self.of.data
        self._numbers: dict[Capacity, int] = {}
        #: [class] its amounts; those in `_free` have no rows.
        self._keys: list[Capacity] = []
        #: [class] how many rows are of it; the same memory as `_count`.
        self._counts: Ints = np.zeros(0, dtype=np.int64)
        self._count = self._counts.data
        self._examples: Rows = np.zeros(0, dtype=np.intp)
        #: Classes whose example has become of another class.
        self._orphans: set[int] = set()
        self._free: list[int] = []

    def refresh(self, columns: Columns, touched: RowLog) -> None:
        """`touched`: rows of `columns` as they changed."""
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
        """[class] a row of it; any row for a class without rows. To be read at once."""
        for number in self._orphans:
            self._examples[number] = (self.of == number).argmax()
        self._orphans.clear()
        return self._examples[: len(self._keys)]

    def ask(self, about: Callable[[Rows], Ints]) -> Ints:
        """[class] what `about` says of a row of it; `REFUSED` for a class without rows."""
        classes, examples = self._there()
        answers = np.full(len(self._keys), REFUSED, dtype=np.int64)
        answers[classes] = about(examples)
        return answers

    def best(
        self, passing: Callable[[Rows], tuple[Rows, Ints]], count: int, offset: int, size: int
    ) -> Sequence[int]:
        """The first `count` of `size` rows in the order of `ranking`. `passing` says which of the rows that it is
        given, by their places, have which score."""
        if not 0 <= offset < size:
            offset = 0
        classes, examples = self._there()
        places, scores = passing(examples)
        chosen: list[int] = []
        for tied in _falling(classes[places], scores):
            chosen += self._first_of(tied, count - len(chosen), offset, size)
            if len(chosen) == count:
                break
        return chosen

    def _there(self) -> tuple[Rows, Rows]:
        """The classes that have rows, and one row of each."""
        examples = self.examples()
        (classes,) = self._counts[: examples.shape[0]].nonzero()
        return classes, examples[classes]

    def _first_of(self, classes: Rows, count: int, offset: int, size: int) -> list[int]:
        """The first `count` rows of `classes` from `offset` on, wrapping around."""
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
        """`_first_of` for the classes that are meant."""
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
        # A row is given its new class before the one that it had is free again.
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


def _falling(classes: Rows, scores: Ints) -> Iterator[Rows]:
    """The classes with the best score, those with the next, and so on."""
    while classes.shape[0] > 1:
        tied = scores == scores[scores.argmax()]
        yield classes[tied]
        others = ~tied
        classes, scores = classes[others], scores[others]
    if classes.shape[0]:
        yield classes
