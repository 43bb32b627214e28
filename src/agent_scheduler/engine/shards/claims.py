"""The rules by which schedulers share nodes without ever sharing one.

A scheduler uses a node only while it has claimed it, which is to say that the node stands in `status.nodesInUse` of its
shard. The rules:

- it claims what its shard desires and no other has claimed (Volcano's `desired - in use by others`);
- where several shards desire a node that none has claimed, the first of them by name claims it, and the others wait.
  One that has a node keeps it for as long as its own shard desires it, so that two that overlap settle and never swap;
- it gives a claim back when its shard no longer desires the node and nothing of its own is under way there;
- what a dead scheduler has claimed counts as free (`Liveness`).

Claiming takes two steps, since no write can depend on another's object: write the claim, then read what all others have
claimed. Of two that claim a node at the same time at least one reads the other's claim and withdraws. If both
do, the second rule lets one of them try again.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from agent_scheduler.objects.shard import NodeShard, NodeShardStatus

Names = frozenset[str]


class Liveness(Enum):
    """What is known of the scheduler of a shard.

    UNKNOWN is of one without a lease, as Volcano's schedulers are: it is never taken for dead.
    """

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Other:
    """Another scheduler's shard, as last read."""

    name: str
    desired: Names
    in_use: Names
    liveness: Liveness = Liveness.UNKNOWN

    @property
    def claims(self) -> Names:
        """What no other scheduler may use."""
        return frozenset() if self.liveness is Liveness.DEAD else self.in_use

    @property
    def contends(self) -> bool:
        """Whether it may come to claim what it desires: a scheduler uses it, or has used it."""
        return self.liveness is Liveness.ALIVE or (self.liveness is Liveness.UNKNOWN and bool(self.in_use))


def other(shard: NodeShard, liveness: Liveness = Liveness.UNKNOWN) -> Other:
    return Other(shard.name, shard.desired, shard.in_use, liveness)


def claimed(others: Iterable[Other]) -> Names:
    """All that they have claimed."""
    return frozenset().union(*(each.claims for each in others))


def available(desired: Names, others: Iterable[Other]) -> Names:
    """What a shard desires and no other has claimed."""
    return desired - claimed(others)


def share(name: str, desired: Names, held: Names, others: Iterable[Other]) -> Names:
    """What the scheduler of the shard `name`, which has claimed `held`, may have from now on.

    Of `held` it leaves out only what is no longer desired: a claim that was read back and found to be no other's is
    not lost to one that came later.
    """
    others = tuple(others)
    before_us = frozenset().union(*(each.desired for each in others if each.contends and each.name < name))
    return (desired & held) | (available(desired, others) - before_us)


def status(desired: Names, in_use: Names, *, now: str) -> NodeShardStatus:
    """The status to write; names in order. `now` is RFC 3339."""
    return NodeShardStatus(
        last_update_time=now,
        nodes_in_use=tuple(sorted(in_use)),
        nodes_to_add=tuple(sorted(desired - in_use)),
        nodes_to_remove=tuple(sorted(in_use - desired)),
    )


def tells_the_same(one: NodeShardStatus, than: NodeShardStatus) -> bool:
    """Whether two statuses name the same nodes, in whatever order and at whatever time."""
    return all(
        set(mine or ()) == set(theirs or ())
        for mine, theirs in (
            (one.nodes_in_use, than.nodes_in_use),
            (one.nodes_to_add, than.nodes_to_add),
            (one.nodes_to_remove, than.nodes_to_remove),
        )
    )


class ShardingMode(enum.StrEnum):
    """`none`: all nodes are used. `soft`: those of the shard first, others where none of them will do. `hard`: those of
    the shard and no other."""

    NONE = "none"
    SOFT = "soft"
    HARD = "hard"


class Shared(Protocol):
    """One scheduler's part of nodes that are shared, in mode `soft` or `hard`."""

    mode: ShardingMode
    membership: Membership

    @property
    def unready(self) -> str:
        """Why no decision can be made yet, where that has nothing to do with room; else empty."""


class Membership:
    """Owner: the coordinator's side of the scheduler, which changes it between cycles; everything else reads it.

    Invariant: a node is in `nodes` only while the shard's claim to it stands.
    """

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
