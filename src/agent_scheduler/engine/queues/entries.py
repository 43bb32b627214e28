"""The entries of the book, and the sums of a queue."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from ..quotas.queues import QueueInfo
from ..quotas.vector import COMMON, EMPTY, PODS, Total, Vector, add_to


class Standing(Enum):
    """The kind of an entry; `engine.queues.standings` has the moves between them."""

    #: What an admitted group needs and no member holds.
    PROMISED = "promised"
    #: A pod without a node that was admitted past its queue's gate.
    RESERVED = "reserved"
    #: A pod without a node for which an earlier process chose one, or for which pods are being evicted.
    STANDS_BY = "stands_by"
    #: A pod with a chosen node whose bind is not confirmed.
    ASSUMED = "assumed"
    #: A pod that the API server has on a node.
    BOUND = "bound"

    # Enum's own hash is computed in Python, and sums of queues are kept by standing.
    __hash__ = object.__hash__


#: The standings that keep room for a pod or group without a node.
KEPT: Final = frozenset((Standing.PROMISED, Standing.RESERVED, Standing.STANDS_BY))
#: The standings of pods with a node.
PLACED: Final = frozenset((Standing.ASSUMED, Standing.BOUND))


class Entry(NamedTuple):
    """The entry of a pod, or of the promise to a group.

    `queue` may not exist. `turn` orders entries with kept room: the first ones have it if more is kept than there is.
    """

    queue: str
    vector: Vector
    standing: Standing
    turn: tuple[Any, ...] = ()


class QueueHeld:
    """The sums of one queue.

    `limits` are the effective declared limits. Invariant: `used` is the sum of the entries of this queue and its
    children, without amounts of 0.
    """

    __slots__ = ("above", "info", "limits", "name", "own", "pods", "used")

    def __init__(self, name: str) -> None:
        self.name = name
        #: None while the object does not exist; its pods are counted in case it is created.
        self.info: QueueInfo | None = None
        self.limits: dict[str, float] = {}
        #: The parent in whose sums it counts; None if it has no parent, if that is missing, and in a cycle.
        self.above: QueueHeld | None = None
        self.used: Total = {}
        #: Standing -> sum of its own entries, without those of its children.
        self.own: dict[Standing, Total] = {standing: {} for standing in Standing}
        #: The number of its own entries.
        self.pods = 0

    @property
    def chain(self) -> Iterator[QueueHeld]:
        """Yield the queue itself and its ancestors."""
        queue: QueueHeld | None = self
        while queue is not None:
            yield queue
            queue = queue.above


def declared_limits(info: QueueInfo | None) -> dict[str, float]:
    """Return the declared limits of a queue, without 0 of cpu or memory, which is unset, and without pods."""
    if info is None or info.capability is None:
        return {}
    return {
        resource: limit
        for resource, limit in info.capability.items()
        if resource != PODS and (limit > 0 or resource not in COMMON)
    }


def count_in(total: Total, vector: Vector, sign: int) -> None:
    """Add or subtract a vector, and remove zeros, so that a queue does not keep names of resources it once held."""
    for resource, amount in vector.items():
        new = total.get(resource, 0) + sign * amount
        if new:
            total[resource] = new
        else:
            total.pop(resource, None)


def missing_of(queue: QueueHeld, wanted: Vector, counted: Vector, taken: Vector = EMPTY) -> dict[str, float]:
    """Return the amounts by which the queue would exceed its limits with `wanted` in addition.

    `counted` is the part of `wanted` that its usage already includes. `taken` is hypothetical usage, negative for
    hypothetical room.
    """
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
    """Return the room that is kept in a queue for these pods and promises, and for others after the last of them.

    If more is kept than the limit allows, because it was lowered or pods were created without the gate, the first in
    the order have the room; otherwise all would wait for each other. Pods come before promises, since gated members are
    admitted by the room that all pods leave.
    """
    own: Total = {}
    later: Total = {}
    kept = [
        (uid, entry) for uid, entry in entries.items() if entry.standing in KEPT and queue in queues[entry.queue].chain
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
    """Return the part of `wanted` that is in `kept`."""
    return {
        resource: min(amount, kept[resource])
        for resource, amount in wanted.items()
        if amount > 0 and kept.get(resource, 0) > 0
    }
