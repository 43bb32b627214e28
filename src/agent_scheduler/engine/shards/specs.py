"""What the specs of the shards say now: where each node is, as far as a plan is concerned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .policies import Rows

#: In the place of a shard's number.
NO_SHARD: Final = -1


class Specs:
    """Owner of the specs as last given, and of the shards' numbers, which never change.

    Invariant, after `merge`: `column` has the shard of each row that one names; of several the first in the order of
    the settings, and `also` has the others.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        #: [number]
        self.names: list[str] = []
        #: [row] a number. Replaced, never changed, as `also` is: plans have them.
        self.column: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        #: Row -> the numbers of others that name it, too.
        self.also: Mapping[int, frozenset[int]] = {}
        #: Of the shards that name any; their rows by number.
        self._named: dict[str, frozenset[str]] = {}
        self._rows: dict[int, Rows] = {}
        #: Number -> place in the settings.
        self._ranks: Mapping[int, int] = {}

    def number(self, shard: str) -> int:
        """The number of a shard, which may be a new one."""
        number = self.numbers.get(shard)
        if number is None:
            number = self.numbers[shard] = len(self.names)
            self.names.append(shard)
        return number

    def with_nodes(self) -> Sequence[str]:
        """The shards that name any, by name."""
        return sorted(self._named)

    def set_order(self, shards: Sequence[str]) -> None:
        """The settings have these shards, in this order. All rows may be somewhere else then."""
        self._ranks = {self.number(shard): place for place, shard in enumerate(shards)}

    def update(self, shard: str, nodes: Iterable[str], row_of: Callable[[str], int]) -> list[int]:
        """What the spec of `shard` says now. `row_of` may make rows. Returns the rows that it names and did not, or
        did and does not."""
        before, after = self._named.pop(shard, frozenset()), frozenset(nodes)
        changed = [row_of(name) for name in before ^ after]
        self._rows.pop(self.number(shard), None)
        if after:
            self._named[shard] = after
            self._rows[self.number(shard)] = np.fromiter(map(row_of, after), np.intp, len(after))
        return changed

    def merge(self, capacity: int) -> None:
        """Makes `column` and `also` anew, for `capacity` rows."""
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
