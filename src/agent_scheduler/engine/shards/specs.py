"""What the specs of the shards say now: where each node is, as far as a plan is concerned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .rates import grown

#: In the place of a shard's number.
NO_SHARD: Final = -1


class Specs:
    """Owner of the specs as last told, and of the shards' numbers, which never change.

    Invariant: `column` has the shard of each row that one names; of several the first in the order of the settings, and
    `also` has the others.
    """

    __slots__ = ("_named", "_ranks", "also", "column", "names", "numbers")

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        #: [number]
        self.names: list[str] = []
        #: [row] a number.
        self.column: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        #: Row -> the numbers of others that name it, too. Replaced, never changed: plans have it.
        self.also: Mapping[int, frozenset[int]] = {}
        self._named: dict[str, frozenset[str]] = {}
        #: Number -> place in the settings.
        self._ranks: Mapping[int, int] = {}

    def grow(self, capacity: int) -> None:
        if self.column.shape[0] < capacity:
            self.column = grown(self.column, capacity, NO_SHARD)

    def number(self, shard: str) -> int:
        """The number of a shard, which may be a new one."""
        number = self.numbers.get(shard)
        if number is None:
            number = self.numbers[shard] = len(self.names)
            self.names.append(shard)
        return number

    def nodes(self, shard: str) -> frozenset[str]:
        return self._named.get(shard, frozenset())

    def with_nodes(self) -> Sequence[str]:
        """The shards that name any, by name."""
        return sorted(shard for shard, nodes in self._named.items() if nodes)

    def rank(self, shards: Sequence[str]) -> None:
        """The settings have these shards, in this order. All rows may be somewhere else then."""
        self._ranks = {self.number(shard): place for place, shard in enumerate(shards)}
        also = dict(self.also)
        for row, others in self.also.items():
            self._choose(row, {self.column.item(row), *others}, also)
        self.also = also

    def tell(self, shard: str, nodes: Iterable[str], row_of: Callable[[str], int]) -> list[int]:
        """What the spec of `shard` says now. `row_of` may make rows, and grow the columns. Returns the rows whose entry
        has changed."""
        number, before, after = self.number(shard), self.nodes(shard), frozenset(nodes)
        left, joined = [row_of(name) for name in before - after], [row_of(name) for name in after - before]
        # Mostly no other shard names any of them, and there may be many.
        alone = [row for row in left if row not in self.also] if self.also else left
        self.column[alone] = NO_SHARD
        here = self.column[joined]
        free = np.array(joined, dtype=np.intp)[here == NO_SHARD]
        self.column[free] = number
        if self.also or free.shape[0] < len(joined):
            also = dict(self.also)
            for row in left:
                if row in also:
                    self._choose(row, {self.column.item(row), *also[row]} - {number}, also)
            for row in joined:
                if self.column.item(row) != number:
                    self._choose(row, {self.column.item(row), *also.get(row, ()), number}, also)
            self.also = also
        if after:
            self._named[shard] = after
        else:
            self._named.pop(shard, None)
        return left + joined

    def _choose(self, row: int, holders: set[int], also: dict[int, frozenset[int]]) -> None:
        first = NO_SHARD
        if holders:
            last = len(self._ranks)
            first = min(holders, key=lambda number: (self._ranks.get(number, last), self.names[number]))
        self.column[row] = first
        also.pop(row, None)
        if len(holders) > 1:
            also[row] = frozenset(holders - {first})
