"""The rules by which schedulers divide nodes without ever sharing one.

A scheduler uses a node only while it has claimed it, which means that `status.nodesInUse` of its shard has the node.
The rules:

- it claims the nodes that its shard desires and no other has claimed (Volcano's `desired - in use by others`);
- if several shards desire an unclaimed node, the first of them by name claims it, and the others wait. A shard with a
  node keeps it as long as its own spec desires it, so that overlapping shards settle and never swap;
- it releases a claim when its shard no longer desires the node and no operation of its own is in progress there;
- claims of a dead scheduler count as free (`Liveness`).

Claiming takes two steps, because no write can depend on another object: write the claim, then read the claims of all
others. If two claim a node at the same time, at least one reads the other's claim and withdraws. If both do, the second
rule lets one of them try again.
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
    """The state of the scheduler of a shard, as far as known.

    UNKNOWN is a scheduler without a lease, such as Volcano's: it never counts as dead.
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
        """The nodes that no other scheduler may use."""
        return frozenset() if self.liveness is Liveness.DEAD else self.in_use

    @property
    def contends(self) -> bool:
        """Whether it may claim the nodes that it desires: a scheduler uses it, or has used it."""
        return self.liveness is Liveness.ALIVE or (self.liveness is Liveness.UNKNOWN and bool(self.in_use))


def other(shard: NodeShard, liveness: Liveness = Liveness.UNKNOWN) -> Other:
    return Other(shard.name, shard.desired, shard.in_use, liveness)


def claimed(others: Iterable[Other]) -> Names:
    """Return all nodes that they have claimed."""
    return frozenset().union(*(each.claims for each in others))


def available(desired: Names, others: Iterable[Other]) -> Names:
    """Return the nodes that a shard desires and no other has claimed."""
    return desired - claimed(others)


def share(name: str, desired: Names, held: Names, others: Iterable[Other]) -> Names:
    """Return the nodes that the scheduler of the shard `name`, which has claimed `held`, may have from now on.

    Of `held` it drops only nodes that are no longer desired: a claim that was read back and confirmed as exclusive is
    not lost to a later one.
    """
    others = tuple(others)
    before_us = frozenset().union(*(each.desired for each in others if each.contends and each.name < name))
    return (desired & held) | (available(desired, others) - before_us)


def status(desired: Names, in_use: Names, *, now: str) -> NodeShardStatus:
    """Return the status to write, with sorted names. `now` is RFC 3339."""
    return NodeShardStatus(
        last_update_time=now,
        nodes_in_use=tuple(sorted(in_use)),
        nodes_to_add=tuple(sorted(desired - in_use)),
        nodes_to_remove=tuple(sorted(in_use - desired)),
    )


def tells_the_same(one: NodeShardStatus, than: NodeShardStatus) -> bool:
    """Return whether two statuses name the same nodes, in any order and at any time."""
    return all(
        set(mine or ()) == set(theirs or ())
        for mine, theirs in (
            (one.nodes_in_use, than.nodes_in_use),
            (one.nodes_to_add, than.nodes_to_add),
            (one.nodes_to_remove, than.nodes_to_remove),
        )
    )


class ShardingMode(enum.StrEnum):
    """The use of nodes by shard.

    `none`: all nodes are used. `soft`: nodes of the shard are preferred, others are used if none of them is feasible.
    `hard`: only nodes of the shard are used.
    """

    NONE = "none"
    SOFT = "soft"
    HARD = "hard"


class Shared(Protocol):
    """One scheduler's part of the divided nodes, in mode `soft` or `hard`."""

    mode: ShardingMode
    membership: Membership

    @property
    def unready(self) -> str:
        """The reason why no decision can be made yet, if unrelated to room; otherwise empty."""


class Membership:
    """The nodes of the scheduler's shard. Owned by the coordinator's side, which changes it between cycles.

    Invariant: a node is in `nodes` only while the shard's claim to it is valid.
    """

    def __init__(self) -> None:
        self.nodes: Names = frozenset()
        #: The reason why there is no usable shard, if so: then `nodes` is empty, which does not mean that the cluster
        #: lacks room.
        self.unready = "it is not known yet which nodes are in this scheduler's node shard"

    def set(self, nodes: Names, unready: str = "") -> tuple[Names, Names, bool]:
        """Replace the nodes and the reason.

        Return the nodes that joined, those that left, and whether the reason changed.
        """
        joined, left = nodes - self.nodes, self.nodes - nodes
        other = unready != self.unready
        self.nodes, self.unready = nodes, unready
        return joined, left, other
