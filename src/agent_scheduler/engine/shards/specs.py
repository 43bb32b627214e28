"""The current specs of the shards: the shard of each node for a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .node_columns import Rows

#: The number for no shard.
NO_SHARD: Final = -1


class Specs:
    """Owns the last known specs, and the shards' numbers, which never change.

    Invariant, after `merge`: `column` has the shard of each row that one names; of several the first in the order of
    the settings, and `also` has the others.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        #: [number]
        self.names: list[str] = []
        #: [row] a number. Replaced, never changed, like `also`: plans hold them.
        self.column: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        #: Row -> the numbers of further shards that name it.
        self.also: Mapping[int, frozenset[int]] = {}
        #: The nodes of shards that name any; and their rows by number.
        self._named: dict[str, frozenset[str]] = {}
        self._rows: dict[int, Rows] = {}
        #: Number -> position in the settings.
        self._ranks: Mapping[int, int] = {}

    def number(self, shard: str) -> int:
        """Return the number of a shard, which may be a new one."""
        number = self.numbers.get(shard)
        if number is None:
            number = self.numbers[shard] = len(self.names)
            self.names.append(shard)
        return number

    def with_nodes(self) -> Sequence[str]:
        """Return the shards that name any node, by name."""
        return sorted(self._named)

    def set_order(self, shards: Sequence[str]) -> None:
        """Set the shards of the settings and their order, which may change all rows."""
        self._ranks = {self.number(shard): place for place, shard in enumerate(shards)}

    def update(self, shard: str, nodes: Iterable[str], row_of: Callable[[str], int]) -> list[int]:
        """Store the current spec of `shard`. Return the rows that it newly names or no longer names.

        `row_of` may create rows.
        """
        before, after = self._named.pop(shard, frozenset()), frozenset(nodes)
        changed = [row_of(name) for name in before ^ after]
        self._rows.pop(self.number(shard), None)
        if after:
            self._named[shard] = after
            self._rows[self.number(shard)] = np.fromiter(map(row_of, after), np.intp, len(after))
        return changed

    def merge(self, capacity: int) -> None:
        """Rebuild `column` and `also` for `capacity` rows."""
        column = np.full(capacity, NO_SHARD, dtype=np.int32)
        also: dict[int, frozenset[int]] = {}
        last = len(self._ranks)
        by_rank = sorted(self._rows, key=lambda number: (self._ranks.get(number, last), self.names[number]))
        for number in reversed(by_rank):
            rows = self._rows[number]
            for row in rows[column[rows] != NO_SHARD].tolist():
                also[row] = also.get(row, frozenset()) | {column.item(row)}
            column[rows] = number
        self.column, self.also = column, also
