"""What counts in queues: the entries of the book, and what they come to in each queue."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from .queues import QueueInfo
from .vector import COMMON, EMPTY, PODS, Total, Vector, add_to


class Standing(Enum):
    """As what room of a queue is counted; `engine.quotas.standings` has how one follows the other.

    promised: of a group that was let into its queue, what it needs and none of its members holds. reserved: of a pod
    that was let past its queue's gate and has no node. stands_by: of a pod whose stage has not come, which an earlier
    process chose a node for. assumed: a node is chosen, the bind is not confirmed. bound: the cluster says that the pod
    is on a node."""

    PROMISED = "promised"
    RESERVED = "reserved"
    STANDS_BY = "stands_by"
    ASSUMED = "assumed"
    BOUND = "bound"


#: Room that is kept for somebody who has no node.
KEPT: Final = frozenset((Standing.PROMISED, Standing.RESERVED, Standing.STANDS_BY))


class Entry(NamedTuple):
    """What a pod, or the promise to a group, counts as. `queue` need not exist. `turn`: of what is kept, which is
    first where more is kept than there is."""

    queue: str
    vector: Vector
    standing: Standing
    turn: tuple[Any, ...] = ()


class QueueHeld:
    """`limits` are the declared ones that are any. Invariant: `used` is the sum of the pods of this queue and of those
    below it; amounts of 0 are left out."""

    __slots__ = ("chain", "info", "limits", "name", "own", "pods", "used")

    def __init__(self, name: str) -> None:
        self.name = name
        #: None while there is no such object; its pods are counted for when there is.
        self.info: QueueInfo | None = None
        self.limits: dict[str, float] = {}
        #: Itself and its ancestors.
        self.chain: tuple[QueueHeld, ...] = (self,)
        self.used: Total = {}
        #: Its own pods, without those of queues below, by standing.
        self.own: dict[Standing, Total] = {standing: {} for standing in Standing}
        #: How many of its own there are.
        self.pods = 0


def declared_limits(info: QueueInfo | None) -> dict[str, float]:
    """The limits that an object declares: 0 of cpu or memory is none, and Volcano limits no pods by queues."""
    if info is None or info.capability is None:
        return {}
    return {
        resource: limit
        for resource, limit in info.capability.items()
        if resource != PODS and (limit > 0 or resource not in COMMON)
    }


def count_in(total: Total, vector: Vector, sign: int) -> None:
    """Leaves out what comes to nothing, or a queue would keep the name of every resource that it ever held."""
    for resource, amount in vector.items():
        new = total.get(resource, 0) + sign * amount
        if new:
            total[resource] = new
        else:
            total.pop(resource, None)


def missing_of(queue: QueueHeld, wanted: Vector, counted: Vector, taken: Vector = EMPTY) -> dict[str, float]:
    """By how much the queue would exceed its limits with `wanted` more, of which `counted` is in what it holds.
    `taken`: what it is thought to hold besides; less than nothing if it is thought to hold less."""
    missing = {}
    for resource, amount in wanted.items():
        limit = queue.limits.get(resource)
        if limit is not None and amount > 0:
            holds = queue.used.get(resource, 0) + taken.get(resource, 0)
            over = holds - counted.get(resource, 0) + amount - limit
            if over > 0:
                missing[resource] = over
    return missing


def covers(reserved: Vector, wanted: Vector) -> bool:
    return all(amount <= reserved.get(resource, 0) for resource, amount in wanted.items())


def kept_from_others(
    pods: Collection[str], queue: QueueHeld, entries: Mapping[str, Entry], queues: Mapping[str, QueueHeld]
) -> Vector:
    """What is kept in a queue for these pods and promises, and for others after the last of them.

    Where more is kept than there is, since a limit was lowered or pods came without a gate, it is for those whose turn
    is first: else all would wait for one another. Pods come before promises, as members behind a gate are let past when
    all that pods hold leaves them room.
    """
    own: Total = {}
    later: Total = {}
    kept = [
        (uid, entry)
        for uid, entry in entries.items()
        if entry.standing in KEPT and queue in queues[entry.queue].chain
    ]
    for uid, entry in sorted(kept, key=_in_turn):
        if uid in pods:
            later.clear()
        add_to(own if uid in pods else later, entry.vector)
    add_to(own, later)
    return own


def _in_turn(kept: tuple[str, Entry]) -> tuple[bool, tuple[Any, ...]]:
    return kept[1].standing is Standing.PROMISED, kept[1].turn


def part_of(kept: Vector, wanted: Vector) -> Vector:
    """What of `wanted` is in `kept`."""
    return {
        resource: min(amount, kept[resource])
        for resource, amount in wanted.items()
        if amount > 0 and kept.get(resource, 0) > 0
    }
