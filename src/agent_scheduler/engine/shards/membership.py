"""The nodes that this scheduler may use now, as its decisions see them."""

from __future__ import annotations

import enum

from .claims import Names


class ShardingMode(enum.StrEnum):
    """`none`: all nodes are used. `soft`: those of the shard first, others where none of them will do. `hard`: those of
    the shard and no other."""

    NONE = "none"
    SOFT = "soft"
    HARD = "hard"


class Membership:
    """Owner: the coordinator's side of the scheduler, which changes it between cycles; everything else reads it.

    Invariant: a node is in `nodes` only while the shard's claim to it stands.
    """

    __slots__ = ("nodes", "unready")

    def __init__(self) -> None:
        self.nodes: Names = frozenset()
        #: Why there is no shard to speak of, where that is so: then `nodes` is empty, and that says nothing of how much
        #: room the cluster has.
        self.unready = "it is not known yet which nodes are in this scheduler's node shard"

    def set(self, nodes: Names, unready: str = "") -> tuple[Names, Names, bool]:
        """Use these from now on. Gives what joined, what left, and whether it is another state of affairs."""
        joined, left = nodes - self.nodes, self.nodes - nodes
        other = unready != self.unready
        self.nodes, self.unready = nodes, unready
        return joined, left, other
