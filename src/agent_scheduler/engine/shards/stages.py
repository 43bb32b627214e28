"""One turn in the making of a plan: of the nodes that are still to be had, the best, as many as may be.

What a stage takes is kept from plan to plan, with the line between what it takes and what it leaves. A change of a row
costs that row; only where it moves the line are all rows looked at, once, without being sorted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

import numpy as np

from .policies import Flags, Ints, Rows

NO_ROWS: Final[Rows] = np.zeros(0, dtype=np.intp)
_BEYOND_ALL: Final = 2**63 - 1
#: Sums are kept below it. No single amount is near it (`engine.state.requests.NODE_LIMIT`).
_SUM: Final = 2**62


def count(flags: Flags) -> int:
    """How many are set."""
    return int(np.count_nonzero(flags))


class Ranked:
    """The order of all rows for one shard: the lower, the sooner. No two rows in use have the same."""

    __slots__ = ("order",)

    def __init__(self) -> None:
        self.order: Ints = np.zeros(0, dtype=np.int64)

    def grow(self, capacity: int) -> None:
        self.order = np.concatenate((self.order, np.zeros(capacity - self.order.shape[0], dtype=np.int64)))


class Stage:
    """Takes the first of its candidates by the order of `ranked`.

    Invariant, after `update`: `taken` are the first `count` candidates, and `count` is the number of candidates or the
    most that it was allowed, whichever is less.
    """

    __slots__ = ("_candidates", "_free", "_line", "count", "ranked", "taken")

    def __init__(self, ranked: Ranked) -> None:
        self.ranked = ranked
        #: [row] whether it may be taken, and whether it is.
        self._candidates: Flags = np.zeros(0, dtype=bool)
        self.taken: Flags = np.zeros(0, dtype=bool)
        self.count = 0
        #: How many candidates are not taken.
        self._free = 0
        #: Candidates are taken whose order is not beyond it.
        self._line = _BEYOND_ALL

    def grow(self, capacity: int) -> None:
        more = np.zeros(capacity - self.taken.shape[0], dtype=bool)
        self._candidates = np.concatenate((self._candidates, more))
        self.taken = np.concatenate((self.taken, more))

    def update(self, rows: Rows, candidates: Flags, most: int | None) -> Rows:
        """`rows`: those whose order may have changed, or whether they are candidates, which is given of each. `most`:
        how many may be taken; None: all. Returns the rows that were taken or left by this, mostly of `rows`."""
        order = self.ranked.order
        was, had = self._candidates[rows], self.taken[rows]
        has = candidates & (order[rows] <= self._line)
        self._candidates[rows], self.taken[rows] = candidates, has
        gained = count(has) - count(had)
        self.count += gained
        self._free += count(candidates) - count(was) - gained
        changed: Rows = rows[has != had]
        allowed = self.count + self._free if most is None else min(most, self.count + self._free)
        if self.count != allowed:
            moved = (
                self._take(allowed - self.count)
                if self.count < allowed
                else self._leave(self.count - allowed)
            )
            # A row may have been taken for its own sake and left for the line's.
            told = np.zeros(order.shape[0], dtype=bool)
            told[rows] = True
            changed = np.concatenate((rows[self.taken[rows] != had], moved[~told[moved]]))
        if not self._free:
            self._line = _BEYOND_ALL
        return changed

    def _take(self, more: int) -> Rows:
        pool = np.flatnonzero(self._candidates & ~self.taken)
        if more < pool.shape[0]:
            keys = self.ranked.order[pool]
            self._line = int(np.partition(keys, more - 1)[more - 1])
            pool = pool[keys <= self._line]
        self._settle(pool, True)
        return pool

    def _leave(self, fewer: int) -> Rows:
        pool = np.flatnonzero(self.taken)
        if fewer < pool.shape[0]:
            keys = self.ranked.order[pool]
            keep = pool.shape[0] - fewer
            self._line = int(np.partition(keys, keep - 1)[keep - 1])
            pool = pool[keys > self._line]
        else:
            self._line = -1
        self._settle(pool, False)
        return pool

    def _settle(self, pool: Rows, taken: bool) -> None:
        self.taken[pool] = taken
        moved = pool.shape[0] if taken else -pool.shape[0]
        self.count += moved
        self._free -= moved


class BudgetedStage(Stage):
    """As `Stage`, and what is taken may sum up to so much only. In their order, each candidate is taken that fits
    beside those before it.

    Other than without a budget, any change looks at all candidates; they are kept sorted.
    """

    __slots__ = ("_budget", "_most", "_sizes", "_sorted", "spent")

    def __init__(self, ranked: Ranked) -> None:
        super().__init__(ranked)
        #: The candidates in their order.
        self._sorted: Rows = NO_ROWS
        self._most: int | None = None
        self._budget: Mapping[str, int] = {}
        #: By resource, what those that are taken sum up to.
        self.spent: Mapping[str, int] = {}

    def spend(
        self,
        rows: Rows,
        candidates: Flags,
        most: int | None,
        *,
        budget: Mapping[str, int],
        sizes: Mapping[str, Ints],
    ) -> Rows:
        """As `update`. `sizes`: by resource, [row] how much of the budget it takes; that of `rows` may have changed."""
        same = most == self._most and budget == self._budget
        if same and not (candidates | self._candidates[rows]).any():
            return NO_ROWS
        self._most, self._budget = most, dict(budget)
        self._sort_in(rows, candidates)
        before = self.taken
        chosen = self._fitting(most, budget, sizes)
        self.taken = np.zeros(before.shape[0], dtype=bool)
        self.taken[chosen] = True
        self.count = chosen.shape[0]
        self._free = self._sorted.shape[0] - self.count
        self.spent = {resource: int(sizes[resource][chosen].sum()) for resource in budget}
        return np.flatnonzero(self.taken != before)

    def _sort_in(self, rows: Rows, candidates: Flags) -> None:
        order, kept = self.ranked.order, self._sorted
        if kept.shape[0]:
            stale = np.zeros(self.taken.shape[0], dtype=bool)
            stale[rows] = True
            kept = kept[~stale[kept]]
        self._candidates[rows] = candidates
        fresh = rows[candidates]
        fresh = fresh[np.argsort(order[fresh])]
        if fresh.shape[0] * 64 > kept.shape[0]:
            both = np.concatenate((kept, fresh))
            self._sorted = both[np.argsort(order[both])]
        else:
            at = [bisect_left(kept, order.item(row), key=order.item) for row in fresh.tolist()]
            self._sorted = np.insert(kept, at, fresh)

    def _fitting(self, most: int | None, budget: Mapping[str, int], sizes: Mapping[str, Ints]) -> Rows:
        room, left = dict(budget), self._sorted.shape[0] if most is None else most
        rest, found = self._sorted, []
        while left > 0:
            for resource, amount in room.items():
                rest = rest[sizes[resource][rest] <= amount]
            if not rest.shape[0]:
                break
            # Those that follow one another as long as all fit: the first does. No more than what sums up in 63 bits.
            largest = max((int(sizes[resource][rest].max()) for resource in room), default=0)
            fitting = min(left, rest.shape[0], _SUM // max(1, largest))
            sums = {resource: np.cumsum(sizes[resource][rest[:fitting]]) for resource in room}
            for resource, amount in room.items():
                fitting = min(fitting, int(np.searchsorted(sums[resource], amount, side="right")))
            found.append(rest[:fitting])
            left -= fitting
            room = {resource: amount - int(sums[resource][fitting - 1]) for resource, amount in room.items()}
            rest = rest[fitting:]
        return np.concatenate(found) if found else NO_ROWS
