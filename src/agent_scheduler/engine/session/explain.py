"""Explains why a gang waits: its minimums, the rejections of nodes, its queues, and its position among other gangs.

The explanation is computed on request from an ended session and its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from apimachinery.quantity import text_of

from ..queues.book import QuotaBook
from ..quotas.vector import CPU, MEMORY, PODS, Vector, in_ledger_units
from ..verdicts import Verdict
from .close import SessionResult
from .model import HOLDING, READY, JobInfo, TaskStatus
from .session import Session

#: The maximum number of distinct rejections in an explanation.
_SHOWN: Final = 3


class Minimum(Struct, frozen=True, kw_only=True):
    """A minimum of the group, a role or a kind of sub-groups; `has` counts those with a node and succeeded ones."""

    of: str
    needs: int
    has: int

    @property
    def missing(self) -> int:
        return max(self.needs - self.has, 0)


class QueueStanding(Struct, frozen=True, kw_only=True):
    """The amounts of a queue as Kubernetes quantities.

    `capability` is the declared limit, `deserved` its share in the session if a plugin computes one, `used` the usage
    of all pods in the queue and its children, including those of the fast path. `missing` is the amount by which the
    gang would exceed the limit.
    """

    name: str
    state: str
    capability: Mapping[str, str]
    deserved: Mapping[str, str]
    used: Mapping[str, str]
    missing: Mapping[str, str]


class RejectionCount(Struct, frozen=True, kw_only=True):
    """A message of rejection with the number of pods that it concerns; `pod` is one of them."""

    pods: int
    pod: str
    message: str


class GangExplanation(Struct, frozen=True, kw_only=True):
    group: str
    phase: str
    priority: int
    #: Empty if the gang does not wait.
    waits_for: str
    why: str
    minimums: tuple[Minimum, ...]
    #: The number of members for which the last session found nodes, but which it did not place without the others.
    would_fit: int
    #: Status -> number of members.
    members: Mapping[str, int]
    #: Its own queue first, then the parents.
    queues: tuple[QueueStanding, ...]
    #: Its position, from 1, among the waiting gangs of its queue, and their number; 0 if it does not wait.
    place: int
    waiting: int
    refusals: tuple[RejectionCount, ...]
    #: (reason, message) of the events about the group in the session.
    said: tuple[tuple[str, str], ...]


def explain_gang(session: Session, result: SessionResult, job: JobInfo, book: QuotaBook) -> GangExplanation:
    """Explain a gang by the session and its `result`; `book` is current and may have changed since."""
    verdicts = {each.group.name: each.verdict for each in result.groups if each.verdict is not None}
    verdict = verdicts.get(job.uid)
    place, waiting = _place(session, job, verdicts) if verdict is not None else (0, 0)
    return GangExplanation(
        group=job.uid,
        phase=job.phase,
        priority=job.priority,
        waits_for="" if verdict is None else verdict.label,
        why="" if verdict is None else verdict.message,
        minimums=minimums(job),
        would_fit=sum(task.attempt[0] in HOLDING for task in job.by_status[TaskStatus.PENDING].values()),
        members=job.counts,
        queues=_queues(job, result, verdict, book),
        place=place,
        waiting=waiting,
        refusals=_refusals(job),
        said=tuple(
            dict.fromkeys((event.reason, event.message) for event in result.events if event.group == job.group.key)
        ),
    )


def minimums(job: JobInfo) -> tuple[Minimum, ...]:
    """Return the minimums of the group, of its roles if they count, and of its sub-groups."""
    found = [Minimum(of="group", needs=job.minimum, has=job.ready + job.best_effort)]
    found += [
        Minimum(of=f"role {role}", needs=least, has=job.in_role(role, READY, best_effort=True))
        for role, least in job.role_minimums.items()
    ]
    found += [
        Minimum(of=f"sub-groups {policy}", needs=least, has=job.ready_sub_jobs[policy])
        for policy, least in job.sub_minimums.items()
        if least
    ]
    return tuple(found)


def _place(session: Session, job: JobInfo, waiting: Mapping[str, Verdict]) -> tuple[int, int]:
    """Return the job's position among the waiting jobs of its queue, and their number; admitted jobs come first."""
    key_of = session.tiers.job_key
    rivals = [each for each in session.jobs.values() if each.queue == job.queue and each.uid in waiting]
    rivals.sort(key=lambda each: (each.is_pending, key_of(each)))
    return rivals.index(job) + 1, len(rivals)


def _queues(job: JobInfo, result: SessionResult, verdict: Verdict | None, book: QuotaBook) -> tuple[QueueStanding, ...]:
    short = verdict.queue if verdict is not None else None
    found = []
    for info, limits in book.upwards(job.queue):
        missing = short.missing if short is not None and short.queue == info.name else {}
        found.append(
            QueueStanding(
                name=info.name,
                state=info.state,
                capability=amounts(limits),
                deserved=amounts(_deserved(result.gauges.get(info.name, {}))),
                used=amounts(book.used(info.name)),
                missing=amounts(missing),
            )
        )
    return tuple(found)


def _deserved(gauges: Mapping[str, float]) -> Vector:
    """Return the deserved amounts that are not zero."""
    named = {
        {"MilliCPU": CPU, "Memory": MEMORY}.get(name) or name.removeprefix("Scalar "): amount
        for gauge, amount in gauges.items()
        if (name := gauge.removeprefix("deserved")) != gauge
    }
    return {resource: amount for resource, amount in named.items() if amount and resource != PODS}


def amounts(vector: Vector) -> dict[str, str]:
    """Return the amounts as Kubernetes quantities, without pods, which no queue limits."""
    return {
        resource: text_of(resource, in_ledger_units(resource, amount))
        for resource, amount in vector.items()
        if resource != PODS
    }


def _refusals(job: JobInfo) -> tuple[RejectionCount, ...]:
    """Return the distinct rejections, the most frequent first."""
    pods: dict[str, list[str]] = {}
    for uid, task in job.tasks.items():
        error = job.fit_errors.get(uid)
        if error is not None:
            pods.setdefault(error.message, []).append(task.pod.name)
    often = sorted(pods.items(), key=lambda each: -len(each[1]))[:_SHOWN]
    return tuple(RejectionCount(pods=len(names), pod=names[0], message=message) for message, names in often)
