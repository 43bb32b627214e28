"""Assigns nodes to shards, which take them in turns. `planning` has the rules.

The results of a shard's policies for a row are kept, and evaluated again only if the row has changed; the taken rows
are computed again for all shards, without sorting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from .node_columns import CORDONED, FOREIGN, NOT_READY, PRESENT, STATES, Flags, Ints, NodeColumns, Rows, grown
from .policies import POINTS, Nodes, ShardRules
from .settings import PlanSettings
from .specs import NO_SHARD

#: The turn of a row that no shard takes.
NO_TURN: Final = 2**15 - 1
#: Bits of `Assignment.flags`: some shard's filters accept the node; those of its current shard do; it may be assigned.
WANTED: Final = 1
KEEPS: Final = 2
ASSIGNABLE: Final = 4
#: Ranks of names are below 2 to this power.
_RANK_BITS: Final = 32
#: Sums of capacity stay below this. No single amount is near it (`engine.state.requests.NODE_LIMIT`).
_SUM: Final = 2**62

CHOSEN: Final = "chosen"
MINIMUM: Final = "minimum"
LEFTOVER: Final = "leftover"


class ShardTurn(Struct, frozen=True, gc=False):
    """The number of a shard, and the rule by which it takes nodes."""

    shard: int
    kind: str


class _Shard:
    """One shard of the settings: its rules, their results for each row, and the nodes that it has taken."""

    __slots__ = ("count", "number", "passes", "points", "room", "rules")

    def __init__(self, number: int, rules: ShardRules) -> None:
        self.number = number
        self.rules = rules
        #: [row] its score, doubled so that the odd bonus of the current shard decides ties; whether the filters accept
        #: it.
        self.points: Ints = np.zeros(0, dtype=np.int64)
        self.passes: Flags = np.zeros(0, dtype=bool)
        #: The number of its nodes, and its remaining budget by resource, empty without a budget.
        self.count = 0
        self.room: dict[str, int] = {}

    def begin(self) -> None:
        """Reset: nothing is taken."""
        self.count, self.room = 0, dict(self.rules.limits.budget or {})

    def grow(self, capacity: int) -> None:
        self.points, self.passes = grown(self.points, capacity), grown(self.passes, capacity)

    def least(self, there: int) -> int:
        """Return its minimum if `there` nodes can be assigned."""
        most = self.rules.limits.most_of(there)
        return self.rules.limits.least if most is None else min(self.rules.limits.least, most)

    def take(self, rows: Rows, most: int | None, columns: NodeColumns) -> Rows:
        """Return the rows with the highest score, ties by name.

        At most `most` of `rows` (None for all), within the budget.
        """
        if self.room:
            sizes = columns.offered
            taken = _fitting(rows[np.argsort(self._order(rows, columns))], most, self.room, sizes)
            for resource in self.room:
                self.room[resource] -= int(sizes[resource][taken].sum())
        elif most is not None and most < rows.shape[0]:
            order = self._order(rows, columns)
            taken = rows[order <= np.partition(order, most - 1)[most - 1]] if most > 0 else rows[:0]
        else:
            taken = rows
        self.count += taken.shape[0]
        return taken

    def _order(self, rows: Rows, columns: NodeColumns) -> Ints:
        """Return a sort key for each row: lower is taken first; keys are unique."""
        order: Ints = columns.ranks[rows] - (self.points[rows] << _RANK_BITS)
        return order


class Assignment:
    """Owns the assignment of rows to shards.

    Invariant, after `update`: a row's turn is the first that would take it, if each took the best rows that earlier
    turns left.
    """

    def __init__(self, settings: PlanSettings, numbers: Sequence[int], columns: NodeColumns) -> None:
        """Prepare the assignment; `numbers` are those of the shards. Call `update` with every row first."""
        self._columns = columns
        self._shards = [
            _Shard(number, ShardRules(shard, margin=settings.stickiness.margin))
            for number, shard in zip(numbers, settings.shards, strict=True)
        ]
        leftover = settings.leftover_shard
        self._leftover = None if leftover is None else self._shards[settings.names.index(leftover)]
        right = [*(ShardTurn(each, CHOSEN) for each in numbers), *(ShardTurn(each, MINIMUM) for each in numbers)]
        if self._leftover is not None:
            right.append(ShardTurn(self._leftover.number, LEFTOVER))
        #: The turns by number.
        self.turns = tuple(right)
        self._shard_of = np.array([turn.shard for turn in right], dtype=np.int32)
        #: [number] whether it is a shard of the settings; the last two are for others, and for no shard at -1.
        self._is_ours: Flags = np.zeros(max(numbers) + 3, dtype=bool)
        self._is_ours[list(numbers)] = True
        self._bonus = 2 * round(settings.stickiness.gain * POINTS) + 1
        self._assignable_states, self._retained_states = _treatments(settings)
        #: [row] the number of its turn; the number of its shard, including one where it only stays. Replaced by
        #: `update`.
        self.turn: NDArray[np.int16] = np.zeros(0, dtype=np.int16)
        self.owner: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        #: [row] bits.
        self.flags: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
        #: [row] whether it may be assigned to a shard; whether it stays in its current one without counting anywhere.
        self._assignable: Flags = np.zeros(0, dtype=bool)
        self._retained: Flags = np.zeros(0, dtype=bool)

    @property
    def resources(self) -> set[str]:
        return {resource for shard in self._shards for resource in shard.rules.resources}

    @property
    def marks(self) -> set[tuple[str, str]]:
        return {mark for shard in self._shards for mark in shard.rules.marks}

    def counts(self) -> Mapping[int, int]:
        """Return the number of nodes of each shard by its number, including those that only stay."""
        found = {shard.number: shard.count for shard in self._shards}
        for number in self.owner[self._retained].tolist():
            found[number] += 1
        return found

    def short(self) -> Mapping[int, int]:
        """Return by how many nodes each shard is below its minimum, by its number; only those that are."""
        lacking = {shard.number: shard.rules.limits.least - shard.count for shard in self._shards}
        return {number: count for number, count in lacking.items() if count > 0}

    def grow(self, capacity: int) -> None:
        if self.flags.shape[0] < capacity:
            self.flags = grown(self.flags, capacity)
            self._assignable, self._retained = (grown(self._assignable, capacity), grown(self._retained, capacity))
            for shard in self._shards:
                shard.grow(capacity)

    def update(self, rows: Rows, spec: NDArray[np.int32]) -> None:
        """Assign the rows, of which `rows` may have changed. `spec` is [row] the number of its current shard."""
        self._evaluate(rows, spec[rows])
        self.turn = np.full(spec.shape[0], NO_TURN, dtype=np.int16)
        self._assign()
        owner = np.where(self.turn == NO_TURN, NO_SHARD, self._shard_of[np.minimum(self.turn, len(self.turns) - 1)])
        self.owner = np.where(self._retained, spec, owner)

    def _evaluate(self, rows: Rows, spec: NDArray[np.int32]) -> None:
        """Evaluate whether `rows` may be assigned, their scores and whether they pass, for each shard's policies."""
        state = self._columns.state[rows]
        assignable = self._assignable_states[state]
        self._assignable[rows] = assignable
        self._retained[rows] = (
            self._retained_states[state] & ~assignable & self._is_ours[np.minimum(spec, self._is_ours.shape[0] - 2)]
        )
        nodes = Nodes(self._columns, rows)
        wanted, keeps = np.zeros((2, rows.shape[0]), dtype=bool)
        for shard in self._shards:
            own = spec == shard.number
            shard.points[rows] = 2 * shard.rules.points(nodes) + self._bonus * own
            passes = shard.rules.passes(nodes, own)
            shard.passes[rows] = passes
            wanted |= passes
            keeps |= passes & own
        self.flags[rows] = WANTED * wanted + KEEPS * keeps + ASSIGNABLE * assignable

    def _assign(self) -> None:
        """Assign by filters, then fill minimums from the remaining nodes, then give the rest to the leftover shard."""
        free = self._assignable.copy()
        there = left = int(np.count_nonzero(free))
        leasts = [shard.least(there) for shard in self._shards]
        owed, short = sum(leasts), 0
        for turn, (shard, least) in enumerate(zip(self._shards, leasts, strict=True)):
            shard.begin()
            owed -= least
            # The rest is reserved for the minimums of other shards; a shard may fill its own minimum before later ones.
            spare = max(left - short - owed, min(least, left - short))
            most = shard.rules.limits.most_of(there)
            self._take(turn, shard, free, free & shard.passes, spare if most is None else min(spare, most))
            left -= shard.count
            short += max(0, least - shard.count)
        for turn, (shard, least) in enumerate(zip(self._shards, leasts, strict=True), len(self._shards)):
            if shard.count < least:
                self._take(turn, shard, free, free, least - shard.count)
        last = self._leftover
        if last is not None:
            most = last.rules.limits.most_of(there)
            self._take(len(self.turns) - 1, last, free, free, None if most is None else max(0, most - last.count))

    def _take(self, turn: int, shard: _Shard, free: Flags, candidates: Flags, most: int | None) -> None:
        taken = shard.take(np.flatnonzero(candidates), most, self._columns)
        self.turn[taken] = turn
        free[taken] = False


def _fitting(rest: Rows, most: int | None, budget: Mapping[str, int], sizes: Mapping[str, Ints]) -> Rows:
    """Return those of `rest`, in that order, that fit beside the ones before them."""
    room, left = dict(budget), rest.shape[0] if most is None else most
    found = [rest[:0]]
    while left > 0:
        for resource, amount in room.items():
            rest = rest[sizes[resource][rest] <= amount]
        if not rest.shape[0]:
            break
        # Takes consecutive rows as long as all fit, at least the first. The sums stay within 63 bits.
        largest = max((int(sizes[resource][rest].max()) for resource in room), default=0)
        fitting = min(left, rest.shape[0], _SUM // max(1, largest))
        sums = {resource: np.cumsum(sizes[resource][rest[:fitting]]) for resource in room}
        for resource, amount in room.items():
            fitting = min(fitting, int(np.searchsorted(sums[resource], amount, side="right")))
        found.append(rest[:fitting])
        left -= fitting
        room = {resource: amount - int(sums[resource][fitting - 1]) for resource, amount in room.items()}
        rest = rest[fitting:]
    return np.concatenate(found)


def _treatments(settings: PlanSettings) -> tuple[Flags, Flags]:
    """Return by a node's state whether it may be assigned, and whether it may stay in its shard."""
    treatments = ((CORDONED, settings.cordoned_nodes), (NOT_READY, settings.not_ready_nodes))
    assignable, retained = np.zeros(STATES, dtype=bool), np.zeros(STATES, dtype=bool)
    for state in range(STATES):
        if state & PRESENT and not state & FOREIGN:
            said = {treatment for bit, treatment in treatments if state & bit}
            assignable[state] = said <= {"include"}
            retained[state] = said <= {"include", "keep"}
    return assignable, retained
