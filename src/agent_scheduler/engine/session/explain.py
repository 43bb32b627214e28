"""Why a gang waits: which of its minimums is short, on what, how near it is, and whose turn comes before.

Of a session that is over, and of its result. It costs nothing until somebody asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from apimachinery.quantity import text_of

from ..quotas.book import QuotaBook
from ..quotas.vector import CPU, MEMORY, PODS, Vector, in_ledger_units
from ..verdicts import Verdict
from .model import HOLDING, READY, Job, TaskStatus

if TYPE_CHECKING:
    from .close import Result
    from .session import Session

#: Different refusals of nodes that are shown.
_SHOWN: Final = 3


class Minimum(Struct, frozen=True, kw_only=True):
    """`of` is the group, a role or a kind of sub-groups; `has` are those that have a node, or succeeded."""

    of: str
    needs: int
    has: int

    @property
    def missing(self) -> int:
        return max(self.needs - self.has, 0)


class QueueStanding(Struct, frozen=True, kw_only=True):
    """Amounts as Kubernetes writes them: what the queue declares, what it deserved of the cluster in the session, where
    a plugin says so, and what the pods in and below it hold, those of the fast path, too. `missing`: by how much the
    gang would exceed what is declared."""

    name: str
    state: str
    capability: Mapping[str, str]
    deserved: Mapping[str, str]
    used: Mapping[str, str]
    missing: Mapping[str, str]


class Refusal(Struct, frozen=True, kw_only=True):
    """What so many pods were told by the nodes; `pod` is one of them."""

    pods: int
    pod: str
    message: str


class GangExplanation(Struct, frozen=True, kw_only=True):
    group: str
    phase: str
    priority: int
    #: Empty where it has all that it needs.
    waits_for: str
    why: str
    minimums: tuple[Minimum, ...]
    #: Members that the last session found room for and gave up, since the others had none.
    would_fit: int
    #: Status -> members.
    members: Mapping[str, int]
    #: Its own first, then those that it lies in.
    queues: tuple[QueueStanding, ...]
    #: Its place, from 1, among the gangs of its queue that wait, and how many these are; 0 for one that does not wait.
    place: int
    waiting: int
    refusals: tuple[Refusal, ...]
    #: What the session said of the group in events: reason and message.
    said: tuple[tuple[str, str], ...]


def explain_gang(session: Session, result: Result, job: Job, book: QuotaBook) -> GangExplanation:
    """`result`: what the session has left behind; `book` may have changed since."""
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
            dict.fromkeys(
                (event.reason, event.message) for event in result.events if event.group == job.group.key
            )
        ),
    )


def minimums(job: Job) -> tuple[Minimum, ...]:
    """The group's own, those of its roles, where they count, and of its sub-groups."""
    found = [Minimum(of="group", needs=job.minimum, has=job.ready + job.best_effort)]
    found += [
        Minimum(of=f"role {role}", needs=least, has=job.in_role(role, READY, best_effort=True))
        for role, least in job.role_minimums.items()
    ]
    ready = Counter(each.policy for each in job.sub_jobs.values() if each.is_ready)
    found += [
        Minimum(of=f"sub-groups {policy}", needs=least, has=ready[policy])
        for policy, least in job.sub_minimums.items()
        if least
    ]
    return tuple(found)


def _place(session: Session, job: Job, waiting: Mapping[str, Verdict]) -> tuple[int, int]:
    """Those come first that are let in."""
    key_of = session.tiers.job_key
    rivals = [each for each in session.jobs.values() if each.queue == job.queue and each.uid in waiting]
    rivals.sort(key=lambda each: (each.is_pending, key_of(each)))
    return rivals.index(job) + 1, len(rivals)


def _queues(job: Job, result: Result, verdict: Verdict | None, book: QuotaBook) -> tuple[QueueStanding, ...]:
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
    """Of which there is any."""
    named = {
        {"MilliCPU": CPU, "Memory": MEMORY}.get(name) or name.removeprefix("Scalar "): amount
        for gauge, amount in gauges.items()
        if (name := gauge.removeprefix("deserved")) != gauge
    }
    return {resource: amount for resource, amount in named.items() if amount and resource != PODS}


def amounts(vector: Vector) -> dict[str, str]:
    """As Kubernetes writes quantities; pods, which no queue limits, are left out."""
    return {
        resource: text_of(resource, in_ledger_units(resource, amount))
        for resource, amount in vector.items()
        if resource != PODS
    }


def _refusals(job: Job) -> tuple[Refusal, ...]:
    """The most frequent first."""
    pods: dict[str, list[str]] = {}
    for uid, task in job.tasks.items():
        error = job.fit_errors.get(uid)
        if error is not None:
            pods.setdefault(error.message, []).append(task.pod.name)
    often = sorted(pods.items(), key=lambda each: -len(each[1]))[:_SHOWN]
    return tuple(Refusal(pods=len(names), pod=names[0], message=message) for message, names in often)
