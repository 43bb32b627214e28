"""A plan: the desired shard of each node, and the differences from the specs of the shards.

The difference is computed first, in columns, so a plan over a million nodes that changes a hundred costs little; names
are only gathered on demand. A plan is immutable: it does not follow later changes of the planner.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import numpy as np
from msgspec import Struct

from .assignment import ASSIGNABLE, CHOSEN, KEEPS, LEFTOVER, MINIMUM, NO_TURN, WANTED, Assignment
from .node_columns import CORDONED, FOREIGN, PRESENT, NodeColumns
from .settings import PlanSettings
from .specs import NO_SHARD, Specs

_JOINS: Final = {CHOSEN: "chosen by {}", MINIMUM: "for the minimum of {}", LEFTOVER: "left over, which goes to {}"}


class ShardChange(Struct, frozen=True, gc=False, kw_only=True):
    """The change of one shard's spec. Names are sorted; nodes to remove may no longer exist."""

    shard: str
    added: tuple[str, ...]
    removed: tuple[str, ...]


class NodeMove(Struct, frozen=True, gc=False, kw_only=True):
    """A node whose shard is to change. `source` and `target` are shards, None for none."""

    node: str
    source: str | None
    target: str | None
    #: The reason for people: `outside of the ranges of volcano; chosen by agent-scheduler`.
    why: str


class ShardPlan:
    """The result of `planning.Planner.plan`.

    Its shards are those of the settings in their order, then others of ours whose specs still have nodes, and which are
    to be empty. Invariant: a node is in one shard at most.
    """

    def __init__(self, settings: PlanSettings, columns: NodeColumns, specs: Specs, assignment: Assignment) -> None:
        """Copy the state that may change."""
        size = columns.size
        self._names = columns.share_names()
        self._foreign = columns.foreign
        self._also = specs.also
        self._shards = specs.names
        self._numbers = specs.numbers
        self._turns = assignment.turns
        self._places = {name: place for place, name in enumerate(settings.names)}
        #: [row] numbers of shards, of turns; bits.
        self._owner = assignment.owner[:size]
        self._spec = specs.column[:size]
        self._turn = assignment.turn[:size]
        self._state = columns.state[:size].copy()
        self._flags = assignment.flags[:size].copy()
        others = [shard for shard in specs.with_nodes() if shard not in self._places]
        #: The number of nodes that each shard should have.
        self.counts: Mapping[str, int] = {
            **{self._shards[number]: count for number, count in assignment.counts().items()},
            **dict.fromkeys(others, 0),
        }
        #: The number of nodes by which each shard is below its minimum; only those that are.
        self.short: Mapping[str, int] = {self._shards[number]: count for number, count in assignment.short().items()}
        self._differing = np.flatnonzero(self._owner != self._spec)
        #: Shards whose spec is to change.
        self.changed: frozenset[str] = self._changed()

    def _changed(self) -> frozenset[str]:
        rows = self._differing
        if not rows.shape[0] and not self._also:
            return frozenset()
        # Numbers are small, and that of no shard is -1.
        numbers = {
            number - 1
            for column in (self._owner, self._spec)
            for number in np.flatnonzero(np.bincount(column[rows] + 1)).tolist()
        } - {NO_SHARD}
        if self._also:
            # A shard that also has the node may be the one that should have it.
            numbers.clear()
            for number in range(len(self._shards)):
                if any(self._difference(number)):
                    numbers.add(number)
        return frozenset(self._shards[number] for number in numbers)

    @property
    def moved(self) -> int:
        """The number of nodes that are to join, leave or change a shard."""
        return self._differing.shape[0]

    @cached_property
    def desired(self) -> Mapping[str, tuple[str, ...]]:
        """Shard -> the sorted names that its spec should have."""
        return {shard: self._desired(shard) for shard in self.counts}

    @cached_property
    def changes(self) -> Mapping[str, ShardChange]:
        """The changes of the shards in `changed`."""
        return {shard: self._change(shard) for shard in self.counts if shard in self.changed}

    @cached_property
    def moves(self) -> tuple[NodeMove, ...]:
        """The moves, sorted by node name."""
        moves = [
            NodeMove(
                node=self._names[row],
                source=self._shard(self._spec.item(row)),
                target=self._shard(self._owner.item(row)),
                why=self._why(row),
            )
            for row in self._differing.tolist()
        ]
        return tuple(sorted(moves, key=lambda move: move.node))

    @cached_property
    def unassigned(self) -> Mapping[str, str]:
        """Name -> reason of existing nodes that should be in no shard.

        The reasons are `cordoned`, `not ready`, `wanted by the foreign shard X`, `outside of the ranges of all shards`,
        `no shard has a place for it`.
        """
        rows = np.flatnonzero((self._owner == NO_SHARD) & (self._state & PRESENT != 0)).tolist()
        return {self._names[row]: self._why_nowhere(row) for row in sorted(rows, key=self._names.__getitem__)}

    def _shard(self, number: int) -> str | None:
        return None if number == NO_SHARD else self._shards[number]

    def _desired(self, shard: str) -> tuple[str, ...]:
        rows = np.flatnonzero(self._owner == self._numbers[shard]).tolist()
        return tuple(sorted([self._names[row] for row in rows]))

    def _difference(self, number: int) -> tuple[list[str], list[str]]:
        """Return the names that the spec lacks, and those that it should not have."""
        also = {row for row, numbers in self._also.items() if number in numbers}
        rows = self._differing
        added = rows[self._owner[rows] == number].tolist()
        removed = rows[self._spec[rows] == number].tolist()
        removed.extend(row for row in also if self._owner.item(row) != number)
        return [self._names[row] for row in added if row not in also], [self._names[row] for row in removed]

    def _change(self, shard: str) -> ShardChange:
        added, removed = self._difference(self._numbers[shard])
        return ShardChange(shard=shard, added=tuple(sorted(added)), removed=tuple(sorted(removed)))

    def _why(self, row: int) -> str:
        """Return the reason of a move: why the node leaves its shard, if any, and why it joins another."""
        turn, source, target = self._turn.item(row), self._spec.item(row), self._owner.item(row)
        if not self._state.item(row) & PRESENT:
            return "there is no such node"
        if target == NO_SHARD or turn == NO_TURN:
            return self._why_nowhere(row)
        joins = _JOINS[self._turns[turn].kind].format(self._shards[target])
        if source == NO_SHARD:
            return joins
        return f"{self._why_leave(row, source, target)}; {joins}"

    def _why_leave(self, row: int, source: int, target: int) -> str:
        shard = self._shards[source]
        if shard not in self._places:
            return f"{shard} is not configured"
        if not self._flags.item(row) & KEEPS:
            return f"outside of the ranges of {shard}"
        if self._places[self._shards[target]] < self._places[shard]:
            return f"{self._shards[target]} comes before {shard}"
        return f"{shard} has no place for it"

    def _why_nowhere(self, row: int) -> str:
        state, flags = self._state.item(row), self._flags.item(row)
        if flags & ASSIGNABLE:
            return "no shard has a place for it" if flags & WANTED else "outside of the ranges of all shards"
        if state & FOREIGN:
            return f"wanted by the foreign shard {self._foreign[row][0]}"
        return "cordoned" if state & CORDONED else "not ready"
