"""Who takes which nodes: the shards in their turns, from plan to plan. `planning` has the rules.

Each turn is a `Stage`. A row that has changed is put to every turn again; what a turn takes or leaves by that is put to
the turns after it. All else stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from .naming import PLACE_BITS
from .policies import POINTS, Flags, Nodes, Rows, Rules
from .rates import CORDONED, FOREIGN, NOT_READY, PRESENT, STATES, NodeColumns, grown
from .settings import PlanSettings
from .specs import NO_SHARD
from .stages import BudgetedStage, Ranked, Stage, count

#: In the place of a turn's number: none has the row.
NO_TURN: Final = 2**15 - 1
#: Bits of `Cascade.flags`: some shard's filters accept the node; those of the shard that it is in do; it may be given.
WANTED: Final = 1
KEEPS: Final = 2
GIVEN: Final = 4
#: Above all scores, which count twice, so that between two of them is the place of a tie that is won.
_TOP: Final = 2**22 - 1

CHOSEN: Final = "chosen"
MINIMUM: Final = "minimum"
LEFTOVER: Final = "leftover"


class Turn(Struct, frozen=True, gc=False):
    """The number of a shard, and by what right it takes nodes."""

    shard: int
    kind: str


class _Shard:
    """One shard of the settings: its rules, the order that they put nodes in, and its stages."""

    __slots__ = ("choose", "fill", "idle", "leftover", "number", "passes", "ranked", "rules")

    def __init__(self, number: int, rules: Rules) -> None:
        self.number = number
        self.rules = rules
        self.ranked = Ranked()
        #: [row] whether its filters accept it.
        self.passes: Flags = np.zeros(0, dtype=bool)
        make = BudgetedStage if rules.limits.budget else Stage
        self.choose, self.fill, self.leftover = make(self.ranked), make(self.ranked), make(self.ranked)
        #: Nothing is missing of the minimum: `fill` has taken nothing, and is not told what changes.
        self.idle = True

    @property
    def count(self) -> int:
        return self.choose.count + self.fill.count + self.leftover.count

    def grow(self, capacity: int) -> None:
        self.passes = grown(self.passes, capacity)
        for each in (self.ranked, self.choose, self.fill, self.leftover):
            each.grow(capacity)

    def least(self, there: int) -> int:
        """Its minimum, where so many nodes are there to be given."""
        most = self.rules.limits.most_of(there)
        return self.rules.limits.least if most is None else min(self.rules.limits.least, most)


class Cascade:
    """Owner of who has which row.

    Invariant, after `update`: a row is in one stage at most, the one of its turn; that is the first which it would be
    taken by, if each took the best of what those before it left.
    """

    def __init__(self, settings: PlanSettings, numbers: Sequence[int], columns: NodeColumns) -> None:
        """`numbers`: of the shards. Every row is still to be told of (`update`)."""
        self._columns = columns
        self._shards = [
            _Shard(number, Rules(shard, margin=settings.stickiness.margin))
            for number, shard in zip(numbers, settings.shards, strict=True)
        ]
        leftover = settings.leftover_shard
        self._leftover = None if leftover is None else self._shards[settings.names.index(leftover)]
        right = [*(Turn(each, CHOSEN) for each in numbers), *(Turn(each, MINIMUM) for each in numbers)]
        if self._leftover is not None:
            right.append(Turn(self._leftover.number, LEFTOVER))
        #: By number.
        self.turns = tuple(right)
        self._shard_of = np.array([turn.shard for turn in right], dtype=np.int32)
        #: [number] whether it is one of the settings; the last two are for others, and for no shard at -1.
        self._is_ours: Flags = np.zeros(max(numbers) + 3, dtype=bool)
        self._is_ours[list(numbers)] = True
        self._bonus = 2 * round(settings.stickiness.gain * POINTS) + 1
        self._may_be_given, self._may_stay = _treatments(settings)
        #: [row] the number of its turn; the number of its shard, if only because it stays there; bits.
        self.turn: NDArray[np.int16] = np.zeros(0, dtype=np.int16)
        self.owner: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self.flags: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
        #: [row] whether it may be given to a shard; whether it stays in the one that has it, and counts nowhere.
        self._given: Flags = np.zeros(0, dtype=bool)
        self._kept: Flags = np.zeros(0, dtype=bool)
        #: How many of both.
        self._there = self._staying = 0
        #: [row] whether it is among those that this update is about. False between updates.
        self._seen: Flags = np.zeros(0, dtype=bool)

    @property
    def resources(self) -> set[str]:
        return {resource for shard in self._shards for resource in shard.rules.resources}

    @property
    def marks(self) -> set[tuple[str, str]]:
        return {mark for shard in self._shards for mark in shard.rules.marks}

    def counts(self) -> Mapping[int, int]:
        """By the shards' numbers, how many nodes are in it, with those that only stay."""
        found = {shard.number: shard.count for shard in self._shards}
        if self._staying:
            for number in self.owner[self._kept].tolist():
                found[number] += 1
        return found

    def short(self) -> Mapping[int, int]:
        """By the shards' numbers, how many nodes it lacks of its minimum; only those that do."""
        lacking = {shard.number: shard.rules.limits.least - shard.count for shard in self._shards}
        return {number: count for number, count in lacking.items() if count > 0}

    def grow(self, capacity: int) -> None:
        if self.turn.shape[0] < capacity:
            self.turn, self.owner = grown(self.turn, capacity, NO_TURN), grown(self.owner, capacity, NO_SHARD)
            self.flags, self._seen = grown(self.flags, capacity), grown(self._seen, capacity)
            self._given, self._kept = grown(self._given, capacity), grown(self._kept, capacity)
            for shard in self._shards:
                shard.grow(capacity)

    def update(self, rows: Rows, spec: NDArray[np.int32]) -> None:
        """`rows`: those that may have changed in any way, each once. `spec`: [row] the number of the shard that it is
        in now."""
        self._judge(rows, spec[rows])
        self._seen[rows] = True
        rows = self._choose(rows)
        rows = self._fill(rows)
        self._seen[rows] = False
        turns = self.turn[rows]
        owners = np.where(turns == NO_TURN, NO_SHARD, self._shard_of[np.minimum(turns, len(self.turns) - 1)])
        self.owner[rows] = np.where(self._kept[rows], spec[rows], owners)

    def _judge(self, rows: Rows, spec: NDArray[np.int32]) -> None:
        """What each shard thinks of `rows`."""
        state = self._columns.state[rows]
        given = self._may_be_given[state]
        kept = self._may_stay[state] & ~given & self._is_ours[np.minimum(spec, self._is_ours.shape[0] - 2)]
        self._there += count(given) - count(self._given[rows])
        self._staying += count(kept) - count(self._kept[rows])
        self._given[rows], self._kept[rows] = given, kept
        nodes = Nodes(self._columns, rows)
        base = (_TOP << PLACE_BITS) + self._columns.ordering.places[rows]
        wanted, keeps = np.zeros((2, rows.shape[0]), dtype=bool)
        for shard in self._shards:
            own = spec == shard.number
            points = 2 * shard.rules.points(nodes) + self._bonus * own
            shard.ranked.order[rows] = base - (points << PLACE_BITS)
            passes = shard.rules.passes(nodes, own)
            shard.passes[rows] = passes
            wanted |= passes
            keeps |= passes & own
        self.flags[rows] = WANTED * wanted + KEEPS * keeps + GIVEN * given

    def _choose(self, rows: Rows) -> Rows:
        """Have each shard take of those that its filters accept. Returns the rows that may be another's now."""
        there = left = self._there
        leasts = [shard.least(there) for shard in self._shards]
        owed, short = sum(leasts), 0
        for turn, (shard, least) in enumerate(zip(self._shards, leasts, strict=True)):
            owed -= least
            # Left for the minimums of others, but for what an own one may take before a later one.
            spare = max(left - short - owed, min(least, left - short))
            most = shard.rules.limits.most_of(there)
            most = spare if most is None else min(spare, most)
            rows = self._take(turn, rows, shard.choose, shard.passes[rows], most, shard.rules.limits.budget)
            left -= shard.choose.count
            short += max(0, least - shard.choose.count)
        return rows

    def _fill(self, rows: Rows) -> Rows:
        """Have those that lack of their minimum take of the rest, and then the shard for what is left."""
        there = self._there
        for turn, shard in enumerate(self._shards, start=len(self._shards)):
            lacking = max(0, shard.least(there) - shard.choose.count)
            if lacking or not shard.idle:
                fresh = np.arange(self._columns.size) if shard.idle else rows
                shard.idle = not lacking
                budget = _rest(shard.rules.limits.budget, shard.choose)
                rows = self._take(turn, fresh, shard.fill, None, lacking, budget, onto=rows)
        last = self._leftover
        if last is not None:
            most = last.rules.limits.most_of(there)
            if most is not None:
                most = max(0, most - last.choose.count - last.fill.count)
            budget = _rest(last.rules.limits.budget, last.choose, last.fill)
            rows = self._take(len(self.turns) - 1, rows, last.leftover, None, most, budget)
        return rows

    def _take(
        self,
        turn: int,
        rows: Rows,
        stage: Stage,
        passes: Flags | None,
        most: int | None,
        budget: Mapping[str, int] | None,
        *,
        onto: Rows | None = None,
    ) -> Rows:
        """Tell a stage of `rows`. Returns those of `onto` (None: `rows`) with those that it took or left."""
        candidates = self._given[rows] & (self.turn[rows] >= turn)
        if passes is not None:
            candidates &= passes
        if isinstance(stage, BudgetedStage):
            sizes = self._columns.offered
            changed = stage.spend(rows, candidates, most, budget=budget or {}, sizes=sizes)
        else:
            changed = stage.update(rows, candidates, most)
        if onto is None:
            onto = rows
        if not changed.shape[0]:
            return onto
        taken = stage.taken[changed]
        self.turn[changed[taken]] = turn
        left = changed[~taken]
        self.turn[left[self.turn[left] == turn]] = NO_TURN
        fresh = changed[~self._seen[changed]]
        if not fresh.shape[0]:
            return onto
        self._seen[fresh] = True
        return np.concatenate((onto, fresh))


def _rest(budget: Mapping[str, int] | None, *stages: Stage) -> Mapping[str, int] | None:
    """What is left of a budget."""
    if budget is None:
        return None
    spent = [stage.spent for stage in stages if isinstance(stage, BudgetedStage)]
    return {
        resource: amount - sum(each.get(resource, 0) for each in spent) for resource, amount in budget.items()
    }


def _treatments(settings: PlanSettings) -> tuple[Flags, Flags]:
    """By the state of a node, whether it may be given, and whether it may stay in a shard that has it."""
    treatments = ((CORDONED, settings.cordoned_nodes), (NOT_READY, settings.not_ready_nodes))
    may_be_given, may_stay = np.zeros(STATES, dtype=bool), np.zeros(STATES, dtype=bool)
    for state in range(STATES):
        if state & PRESENT and not state & FOREIGN:
            said = {treatment for bit, treatment in treatments if state & bit}
            may_be_given[state] = said <= {"include"}
            may_stay[state] = said <= {"include", "keep"}
    return may_be_given, may_stay
