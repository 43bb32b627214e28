"""The order of nodes by name, as numbers, so that columns can be compared by it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sortedcontainers import SortedList

#: Places are below 2 to this power.
PLACE_BITS: Final = 40
#: Of the places, so much is left free before the first name and after the last.
_QUARTER: Final = 1 << (PLACE_BITS - 2)
#: More new names than this part of those there are: all get new places.
_MANY: Final = 8


class NameOrder:
    """Gives each row a place. A new name gets one between those of its neighbours, and nobody else's changes, until
    there is none between: then all get new ones.

    Invariant, after `settle`: of two rows in use, the one with the lower place has the name that sorts first.
    """

    __slots__ = ("_names", "_step", "places")

    def __init__(self) -> None:
        self._names: SortedList = SortedList()
        #: From a place to the next, when all were given.
        self._step = 1
        #: [row] its place, below 2**PLACE_BITS.
        self.places: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def grow(self, capacity: int) -> None:
        self.places = np.concatenate((self.places, np.zeros(capacity - self.places.shape[0], dtype=np.int64)))

    def discard(self, name: str) -> None:
        self._names.discard(name)

    def settle(self, fresh: Collection[str], names: Sequence[str], row_of: Mapping[str, int]) -> bool:
        """Give places to names that have none, of all those in `row_of`; `names` are by row. Returns whether others'
        have changed, too."""
        if len(fresh) * _MANY > len(self._names):
            self._spread(names, row_of.values())
            return True
        known, places = self._names, self.places
        for name in sorted(fresh):
            at = known.bisect_left(name)
            before = places.item(row_of[known[at - 1]]) if at else -1
            after = places.item(row_of[known[at]]) if at < len(known) else 1 << PLACE_BITS
            # Names mostly come in their order, so more is left free after one than before it.
            step = max(1, (after - before) // 8)
            if at == len(known):
                step = min(step, self._step)
            place = before + step
            known.add(name)
            if place >= after:
                # Those of `fresh` that are still to come get theirs here as well.
                self._spread(names, row_of.values())
                return True
            places[row_of[name]] = place
        return False

    def _spread(self, names: Sequence[str], rows: Iterable[int]) -> None:
        ordered = sorted(rows, key=names.__getitem__)
        self._names = SortedList([names[row] for row in ordered])
        self._step = max(1, 2 * _QUARTER // (len(ordered) + 1))
        places = _QUARTER + self._step * np.arange(len(ordered), dtype=np.int64)
        self.places[np.array(ordered, dtype=np.intp)] = places
