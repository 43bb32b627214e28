"""A queue's account in a session: what it may hold, holds and has been asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from .demand import JobDemand
from .queues import QueueInfo
from .vector import COMMON, EMPTY, UNLIMITED, Total, Vector, add_to


def zero() -> Total:
    return dict.fromkeys(COMMON, 0)


class Account:
    """One queue's amounts in one session. Owner: the plugin that made it; the vectors it was given stay as they are.

    Invariant: `allocated` is what the queue's tasks that hold room ask for, in and below it; `real_capability` is the
    most that it may ever be.
    """

    __slots__ = (
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
        self.share = 0.0

    def count(self, job: JobDemand, admitted: Vector) -> None:
        """Adds a job of this queue or of one below it, which was `admitted` for so much more than it holds."""
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

    allocated: Total
    request: Vector
    inqueue: Vector
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

    Invariant: no task is in here and in an account's `allocated`.
    """

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: dict[str, dict[str, Vector]] = {}

    def add(self, queue: str, uid: str, wanted: Vector) -> None:
        self._tasks.setdefault(queue, {})[uid] = wanted

    def remove(self, queue: str, uid: str) -> None:
        self._tasks.get(queue, {}).pop(uid, None)

    def of_others(self, queue: str, uid: str) -> Total:
        reserved = zero()
        for other, wanted in self._tasks.get(queue, {}).items():
            if other != uid:
                add_to(reserved, wanted)
        return reserved
