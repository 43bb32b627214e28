"""What the jobs of a session hold and ask for, as the plugins of queues count it."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from agent_scheduler.objects.batch import INQUEUE, RUNNING

from .vector import COMMON, EMPTY, PODS, Total, Vector, add_to, exceeding, is_empty


class Demand(Protocol):
    """A part in a queue's accounts, of one job or of several."""

    @property
    def queue(self) -> str: ...
    @property
    def allocated(self) -> Vector: ...
    @property
    def pending(self) -> Vector: ...
    def elastic(self) -> Vector: ...
    def admitted(self) -> Vector: ...


class JobDemand(Struct, frozen=True, kw_only=True):
    """A job's part in its queue's accounts, when a session opens.

    `allocated`: what its tasks that hold room ask for (Allocated, Binding, Bound, Running), `holding` so many of them;
    `pending`: what its pending ones ask for; `gated`: what those ask for that other gates hold than the queue's own.
    `minimum` is its group's `minResources`, None where it names none.
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
        """Of pods that are in no job: they hold this, and nothing of it can be had back."""
        return cls(queue=queue, phase="", minimum=held, allocated=held)

    def without_gated(self, wanted: Vector) -> Vector:
        """`wanted` less what gates hold: nobody can tell when that will want room (`DeductSchGatedResources`)."""
        if is_empty(self.gated):
            return wanted
        return {resource: max(amount - self.gated.get(resource, 0), 0) for resource, amount in wanted.items()}

    def elastic(self) -> Total:
        """What it holds above its group's minimum (`GetElasticResources`)."""
        return exceeding(self.allocated, self.minimum or EMPTY)

    def admitted(self) -> Vector:
        """What it was let in for and does not hold yet: of a group that is Inqueue, or Running with all its members.

        A group that runs with fewer has lost members that ended, and reserves nothing for them.
        """
        if self.minimum is None:
            return EMPTY
        if self.phase == INQUEUE or (self.phase == RUNNING and self.holding >= self.min_member):
            return self.without_gated(_not_held(self.minimum, self.allocated))
        return EMPTY

    def reserved(self) -> Vector:
        """What it was let in for: whole while it is Inqueue, whatever its tasks hold already."""
        if self.minimum is None:
            return EMPTY
        return self.without_gated(self.minimum) if self.phase == INQUEUE else self.admitted()


class QueueDemand:
    """The sum of what a queue's jobs demand. Owner: the session that adds them, while it opens."""

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
    """What of `minimum` is not allocated (`GetInqueueResource`).

    Volcano takes the minimum of resources other than cpu and memory in whole units there, and what is allocated in
    thousandths. A thousandth of it counts, then, and nothing once any is held; queues admit by it.
    """
    waiting: Total = dict.fromkeys(COMMON, 0)
    for resource, amount in minimum.items():
        wanted = amount if resource in COMMON or resource == PODS else -(-amount // 1000)
        if wanted > allocated.get(resource, 0):
            waiting[resource] = wanted - allocated.get(resource, 0)
    return waiting
