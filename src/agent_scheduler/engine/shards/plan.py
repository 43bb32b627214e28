"""A plan: which shard each node should be in, and how that differs from what the specs of the shards say.

What is primary is the difference. It is found in columns, so a plan over a million nodes that changes a hundred costs
little; names are gathered only where somebody asks for them. A plan is a value: it stays what it is while the planner
goes on.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Change(Struct, frozen=True, gc=False, kw_only=True):
    """How the spec of one shard is to change. Names in their order; nodes to remove may exist no longer."""

    shard: str
    added: tuple[str, ...]
    removed: tuple[str, ...]


class Move(Struct, frozen=True, gc=False, kw_only=True):
    """One node whose shard is to change. `source` and `target` are shards, None where it was or is to be in none."""

    node: str
    source: str | None
    target: str | None
    #: For people: `volcano has it first`.
    why: str


class Plan:
    """Made by `planning.Planner.plan`. Shards are those of the settings in their order, then others of ours whose specs
    still have nodes, which are to be empty.

    Invariant: a node is in one shard at most.
    """

    #: How many nodes each shard should have.
    counts: Mapping[str, int]
    #: How many each lacks of its minimum; only those that do.
    short: Mapping[str, int]
    #: Shards whose spec is to change.
    changed: frozenset[str]
    #: How many nodes are to be in another shard than now, or in one or in none for the first time.
    moved: int

    @property
    def desired(self) -> Mapping[str, tuple[str, ...]]:
        """The names that each spec should have, in their order. Worked out for a shard when it is asked for."""
        raise NotImplementedError

    @property
    def changes(self) -> Mapping[str, Change]:
        """Of each shard in `changed`."""
        raise NotImplementedError

    @property
    def moves(self) -> tuple[Move, ...]:
        """By the nodes' names."""
        raise NotImplementedError

    @property
    def unassigned(self) -> Mapping[str, str]:
        """Nodes that are there and should be in no shard, by name, each with why: `cordoned`, `not ready`,
        `wanted by the foreign shard X`, `outside of the ranges of all shards`, `no shard has a place for it`."""
        raise NotImplementedError
