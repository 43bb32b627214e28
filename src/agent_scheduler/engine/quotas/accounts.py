"""A queue's account in a session: what it may hold, holds and has been asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from .demand import Demand
from .queues import QueueInfo
from .vector import COMMON, EMPTY, PODS, UNLIMITED, Total, Vector, add_to, in_order, minus, names, take_from


def zero() -> Total:
    return dict.fromkeys(COMMON, 0)


class Account:
    """One queue's amounts in one session. Owner: the plugin that made it; the vectors it was given stay as they are.

    Invariant: `allocated` is what the queue's tasks that hold room ask for, in and below it; `real_capability` is the
    most that it may ever be.
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
        """What it deserves from now on."""
        self.deserved = deserved
        self._deserved = tuple((resource, deserved[resource]) for resource in names(deserved))

    def allocated_part(self) -> float:
        """The greatest part of what is deserved that is allocated, over the resources of which any is."""
        allocated = self.allocated
        return max((allocated.get(each, 0) / deserved for each, deserved in self._deserved), default=0.0)

    def lacking(self, wanted: Vector, limit: Vector, reserved: Vector = EMPTY) -> list[str]:
        """Resources of which it would hold more than `limit` with `wanted` more, and what is `reserved` besides."""
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
        """Adds jobs of this queue or of one below it, which were `admitted` for so much more than they hold."""
        add_to(self.allocated, job.allocated)
        add_to(self.request, job.allocated)
        add_to(self.request, job.pending)
        add_to(self.inqueue, admitted)
        add_to(self.elastic, job.elastic())

    def after_admitting(self, minimum: Vector) -> Total:
        """What is held and admitted, with `minimum` more, without what may be taken back from jobs."""
        used = dict(minimum)
        add_to(used, self.allocated)
        add_to(used, self.inqueue)
        for resource, amount in self.elastic.items():
            used[resource] = used.get(resource, 0) - amount
        return used


class Refusal(NamedTuple):
    """The queue that has not enough left, and of which resources."""

    queue: str
    resources: list[str]


class Gauges(Struct, kw_only=True):
    """A queue's metrics, by Volcano's names; None and absent resources were never set.

    Deserved, request, inqueue and real capacity are those of the session's opening; `allocated` and `share` follow
    allocations, of the queue that a task is in, not of its ancestors.
    """

    allocated: Vector | None = None
    request: Vector | None = None
    inqueue: Vector | None = None
    deserved: Vector | None = None
    real_capability: Vector | None = None
    share: float | None = None
    overused: bool | None = None


def unlimited_where_unset(capability: Total) -> Total:
    """A limit of 0 or less for cpu or memory is none."""
    return {
        resource: UNLIMITED if resource in COMMON and amount <= 0 else amount
        for resource, amount in capability.items()
    }


def total_guarantee(queues: Iterable[QueueInfo]) -> Total:
    total = zero()
    for queue in queues:
        add_to(total, queue.guarantee)
    return total


class Reservations:
    """Tasks that were let past the queue's own gate and hold no room yet, by queue. Owner: a session's plugin.

    Invariants: no task is in here and in an account's `allocated`; a queue's total is the sum of its tasks.
    """

    __slots__ = ("_tasks", "_totals")

    def __init__(self) -> None:
        #: UID -> its queue, and what it wants.
        self._tasks: dict[str, tuple[str, Vector]] = {}
        self._totals: dict[str, Total] = {}

    def add(self, queue: str, uid: str, wanted: Vector) -> None:
        """Nothing if it is there."""
        if uid not in self._tasks:
            self._tasks[uid] = (queue, wanted)
            add_to(self._totals.setdefault(queue, zero()), wanted)

    def remove(self, uid: str) -> None:
        """Nothing if it is not there."""
        queue, wanted = self._tasks.pop(uid, ("", EMPTY))
        if wanted:
            take_from(self._totals[queue], wanted)

    def of_others(self, queue: str, uid: str) -> Vector:
        total = self._totals.get(queue)
        if total is None:
            return EMPTY
        own = self._tasks.get(uid)
        return minus(total, own[1]) if own is not None and own[0] == queue else total
