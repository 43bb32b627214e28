"""The account of a queue in a session: its limits, usage and requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from .demand import Demand
from .queues import QueueInfo
from .vector import COMMON, EMPTY, PODS, UNLIMITED, Total, Vector, add_to, in_order, minus, names, take_from


def zero() -> Total:
    """Return a vector with zero of cpu and memory."""
    return dict.fromkeys(COMMON, 0)


class Account:
    """The amounts of one queue in one session. Owner: the plugin that created it; passed vectors are not changed.

    Invariant: `allocated` is the sum of the requests of tasks with room in the queue and its children;
    `real_capability` is the limit of `allocated`.
    """

    __slots__ = (
        "_deserved",
        "allocated",
        "capability",
        "deserved",
        "elastic",
        "guarantee",
        "info",
        "inqueue",
        "real_capability",
        "request",
        "share",
    )

    def __init__(self, info: QueueInfo) -> None:
        self.info = info
        self.capability: Total | None = None if info.capability is None else {**zero(), **info.capability}
        self.guarantee: Vector = {**zero(), **info.guarantee}
        self.deserved: Total = {**zero(), **info.deserved}
        self.real_capability: Vector = EMPTY
        self.allocated = zero()
        self.request = zero()
        self.inqueue = zero()
        self.elastic = zero()
        self._deserved: tuple[tuple[str, float], ...] = ()
        self.share = 0.0

    def deserve(self, deserved: Total) -> None:
        """Set the deserved share."""
        self.deserved = deserved
        self._deserved = tuple((resource, deserved[resource]) for resource in names(deserved))

    def allocated_part(self) -> float:
        """Return the maximum of allocated / deserved over the resources of which any is deserved."""
        allocated = self.allocated
        return max((allocated.get(each, 0) / deserved for each, deserved in self._deserved), default=0.0)

    def lacking(self, wanted: Vector, limit: Vector, reserved: Vector = EMPTY) -> list[str]:
        """Return the resources of which the queue would exceed `limit` with `wanted` and `reserved` in addition."""
        allocated = self.allocated
        lacking = [
            resource
            for resource, amount in wanted.items()
            if allocated.get(resource, 0) + reserved.get(resource, 0) + amount > limit.get(resource, 0)
            and amount > 0
            and resource != PODS
        ]
        return in_order(lacking) if lacking else lacking

    def count(self, job: Demand, admitted: Vector) -> None:
        """Add jobs of this queue or its children; `admitted` is what they were admitted for and do not hold so far."""
        add_to(self.allocated, job.allocated)
        add_to(self.request, job.allocated)
        add_to(self.request, job.pending)
        add_to(self.inqueue, admitted)
        add_to(self.elastic, job.elastic())

    def after_admitting(self, minimum: Vector) -> Total:
        """Return what is allocated and admitted, plus `minimum`, without what jobs hold beyond their minimums."""
        used = dict(minimum)
        add_to(used, self.allocated)
        add_to(used, self.inqueue)
        for resource, amount in self.elastic.items():
            used[resource] = used.get(resource, 0) - amount
        return used


class QuotaRefusal(NamedTuple):
    """A queue without enough room, and the insufficient resources."""

    queue: str
    resources: list[str]


class Gauges(Struct, kw_only=True):
    """The metrics of a queue, by Volcano's names; None and missing resources were never set.

    Deserved, request, inqueue and real capacity are those of the session's opening; `allocated` and `share` change with
    each allocation in the queue itself, not with those in its children.
    """

    allocated: Vector | None = None
    request: Vector | None = None
    inqueue: Vector | None = None
    deserved: Vector | None = None
    real_capability: Vector | None = None
    share: float | None = None
    overused: bool | None = None


def unlimited_where_unset(capability: Total) -> Total:
    """Return the capability without limits of cpu or memory that are 0 or less, which count as unset."""
    return {
        resource: UNLIMITED if resource in COMMON and amount <= 0 else amount for resource, amount in capability.items()
    }


def total_guarantee(queues: Iterable[QueueInfo]) -> Total:
    """Return the sum of the guarantees."""
    total = zero()
    for queue in queues:
        add_to(total, queue.guarantee)
    return total


class Reservations:
    """The tasks whose queue gate was removed and that hold no room so far, by queue. Owner: a session's plugin.

    Invariants: no task is both here and in an account's `allocated`; a queue's total is the sum of its tasks.
    """

    __slots__ = ("_tasks", "_totals")

    def __init__(self) -> None:
        #: UID -> (queue, request).
        self._tasks: dict[str, tuple[str, Vector]] = {}
        self._totals: dict[str, Total] = {}

    def add(self, queue: str, uid: str, wanted: Vector) -> None:
        """Add a task; a known one is ignored."""
        if uid not in self._tasks:
            self._tasks[uid] = (queue, wanted)
            add_to(self._totals.setdefault(queue, zero()), wanted)

    def remove(self, uid: str) -> None:
        """Remove a task; an unknown one is ignored."""
        queue, wanted = self._tasks.pop(uid, ("", EMPTY))
        if wanted:
            take_from(self._totals[queue], wanted)

    def of_others(self, queue: str, uid: str) -> Vector:
        """Return the sum of a queue's reservations without that of the task `uid`."""
        total = self._totals.get(queue)
        if total is None:
            return EMPTY
        own = self._tasks.get(uid)
        return minus(total, own[1]) if own is not None and own[0] == queue else total
