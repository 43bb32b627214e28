"""The order of nodes by name, as numbers, so that columns can be compared by it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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

    __slots__ = ("_names", "places")

    def __init__(self) -> None:
        self._names: SortedList = SortedList()
        #: [row] its place, below 2**PLACE_BITS.
        self.places: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def grow(self, capacity: int) -> None:
        self.places = np.concatenate((self.places, np.zeros(capacity - self.places.shape[0], dtype=np.int64)))

    def discard(self, name: str) -> None:
        self._names.discard(name)

    def settle(self, fresh: Collection[str], row_of: Mapping[str, int]) -> bool:
        """Give places to names that have none. Returns whether others' have changed, too."""
        if len(fresh) * _MANY > len(self._names):
            self._names.update(fresh)
            self._spread(row_of)
            return True
        names, places = self._names, self.places
        for name in fresh:
            at = names.bisect_left(name)
            before = places.item(row_of[names[at - 1]]) if at else -1
            after = places.item(row_of[names[at]]) if at < len(names) else 1 << PLACE_BITS
            # At the ends with the least of steps: names mostly come in their order.
            step = max(1, 2 * _QUARTER // (len(names) + 1))
            place = (before + after) // 2
            if at == len(names):
                place = min(place, before + step)
            elif not at:
                place = max(place, after - step)
            names.add(name)
            if place == before:
                # Those of `fresh` that are still to come get theirs here as well.
                names.update(each for each in fresh if each not in names)
                self._spread(row_of)
                return True
            places[row_of[name]] = place
        return False

    def _spread(self, row_of: Mapping[str, int]) -> None:
        rows = np.fromiter((row_of[name] for name in self._names), np.intp, len(self._names))
        step = max(1, 2 * _QUARTER // (len(rows) + 1))
        self.places[rows] = _QUARTER + step * np.arange(len(rows), dtype=np.int64)
