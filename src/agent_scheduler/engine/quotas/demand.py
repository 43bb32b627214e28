"""The amounts that jobs of a session hold and request, as the plugins of queues count them."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from agent_scheduler.objects.batch import INQUEUE, RUNNING

from .vector import COMMON, EMPTY, PODS, Total, Vector, add_to, exceeding, is_empty


class Demand(Protocol):
    """The part of one or several jobs in a queue's account."""

    @property
    def queue(self) -> str: ...
    @property
    def allocated(self) -> Vector: ...
    @property
    def pending(self) -> Vector: ...
    def elastic(self) -> Vector: ...
    def admitted(self) -> Vector: ...


class JobDemand(Struct, frozen=True, kw_only=True):
    """The part of a job in its queue's account at the opening of a session.

    `allocated` is the sum of the requests of tasks with room (Allocated, Binding, Bound, Running), `holding` their
    number. `pending` is that of pending tasks, and `gated` that of pending tasks with other gates than the queue's.
    `minimum` is the group's `minResources`; None if it sets none.
    """

    queue: str
    phase: str
    min_member: int = 0
    minimum: Vector | None = None
    allocated: Vector = EMPTY
    holding: int = 0
    pending: Vector = EMPTY
    gated: Vector = EMPTY

    @classmethod
    def of_others(cls, queue: str, held: Vector) -> JobDemand:
        """Return the demand of pods outside of jobs, of which nothing can be reclaimed."""
        return cls(queue=queue, phase="", minimum=held, allocated=held)

    def without_gated(self, wanted: Vector) -> Vector:
        """Return `wanted` without gated tasks, since it is unknown when they need room (`DeductSchGatedResources`)."""
        if is_empty(self.gated):
            return wanted
        return {resource: max(amount - self.gated.get(resource, 0), 0) for resource, amount in wanted.items()}

    def elastic(self) -> Total:
        """Return what the job holds beyond its group's minimum (`GetElasticResources`)."""
        return exceeding(self.allocated, self.minimum or EMPTY)

    def admitted(self) -> Vector:
        """Return the part of the minimum that the job was admitted for and does not hold so far.

        It is not empty only if the group is Inqueue, or Running with its minimum of members. A running group with fewer
        has lost ended members, and reserves nothing for them.
        """
        if self.minimum is None:
            return EMPTY
        if self.phase == INQUEUE or (self.phase == RUNNING and self.holding >= self.min_member):
            return self.without_gated(_not_held(self.minimum, self.allocated))
        return EMPTY

    def reserved(self) -> Vector:
        """Return what the job was admitted for; while it is Inqueue, including what its tasks hold already."""
        if self.minimum is None:
            return EMPTY
        return self.without_gated(self.minimum) if self.phase == INQUEUE else self.admitted()


class QueueDemand:
    """The sum of the demands of a queue's jobs. Owner: the session, which adds them at its opening."""

    __slots__ = ("_admitted", "_elastic", "allocated", "pending", "queue", "reserved")

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.allocated: Total = {}
        self.pending: Total = {}
        self.reserved: Total = {}
        self._elastic: Total = {}
        self._admitted: Total = {}

    def add(self, job: JobDemand) -> None:
        if job.allocated:
            add_to(self.allocated, job.allocated)
            add_to(self._elastic, job.elastic())
        if job.pending:
            add_to(self.pending, job.pending)
        if job.minimum is not None:
            add_to(self._admitted, job.admitted())
            add_to(self.reserved, job.reserved())

    def elastic(self) -> Vector:
        return self._elastic

    def admitted(self) -> Vector:
        return self._admitted


def _not_held(minimum: Vector, allocated: Vector) -> Total:
    """Return the part of `minimum` that is not allocated (`GetInqueueResource`).

    For resources other than cpu and memory, Volcano compares the minimum in whole units with the allocated amount in
    thousandths. So only a thousandth of the minimum counts, and nothing once any is held. Admission depends on this.
    """
    waiting: Total = dict.fromkeys(COMMON, 0)
    for resource, amount in minimum.items():
        wanted = amount if resource in COMMON or resource == PODS else -(-amount // 1000)
        if wanted > allocated.get(resource, 0):
            waiting[resource] = wanted - allocated.get(resource, 0)
    return waiting
