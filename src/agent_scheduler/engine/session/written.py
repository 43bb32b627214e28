"""The PodScheduled condition that is written of a pod, where that is not Volcano's.

Autoscalers add nodes for pods that say `Unschedulable`, and for no others. So a member that would fit and waits for the
rest of its gang says that, too, or they would take its room for free and add too few nodes; and one that a queue or
a quota holds back says something else, since with more nodes it would wait as before (docs/decisions/0032). What limits
a queue here is what it declares: one that waits since all of the cluster is in use does want nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from ..gangs.group import needed
from ..plugins.node_shard import FULL as NODE_SHARD_FULL
from ..plugins.node_shard import NOT_READY as NODE_SHARD_NOT_READY
from ..quotas.book import Headroom, QuotaBook
from ..quotas.shortfall import QUEUE_FULL, Shortfall
from ..quotas.vector import Total, Vector, add_to
from ..state.podinfo import PodInfo
from .messages import SCHEDULABLE, UNSCHEDULABLE
from .model import READY, Job, Task, TaskStatus
from .settled import STRIDE

if TYPE_CHECKING:
    from .session import Session

#: What pods say whose group was not let in since a quota of its namespace has not its minimum left.
QUOTA_EXCEEDED: Final = "QuotaExceeded"

NOBODY: Final[Mapping[str, str]] = MappingProxyType({})

_WAITING: Final = (TaskStatus.PENDING, TaskStatus.ALLOCATED)


class Hold(NamedTuple):
    """What keeps a pod back that no node would help. `queue` is None where it is no queue."""

    reason: str
    message: str
    queue: Shortfall | None = None


def written_condition(reason: str, message: str, hold: Hold | None) -> tuple[str, str]:
    """(reason, message) of what Volcano says of a pod."""
    if hold is not None:
        return hold.reason, hold.message
    return (UNSCHEDULABLE if reason == SCHEDULABLE else reason), message


def holds(
    session: Session, book: QuotaBook, given_back: Mapping[str, str] = NOBODY
) -> Generator[None, None, dict[str, Hold]]:
    """UID -> what keeps the task back, of those that wait, when the actions are done.

    A gang is held if its queue has not what its members lack of the minimum, or there is a fault in the tree of queues;
    else those members are that are above the minimum and do not fit. Gangs that were let into their queue come first,
    then the others, each in the order of jobs. A job at a time. `given_back`: UID -> what to say of pods that have
    given back what was reserved for them.
    """
    found: dict[str, Hold] = {}
    headroom = book.headroom()
    limited: list[Job] = []
    unready = session.view.unready
    for number, job in enumerate(session.jobs.values()):
        if not number % STRIDE:
            yield
        if unready:
            hold = Hold(NODE_SHARD_NOT_READY, f"0/{session.nodes.count} nodes are available: {unready}.")
            found.update((task.uid, hold) for task in _waiting(job))
        elif job.quota_refusal:
            hold = Hold(QUOTA_EXCEEDED, job.quota_refusal)
            found.update((task.uid, hold) for task in _waiting(job))
        elif session.queue_fault:
            hold = Hold(
                QUEUE_FULL, f"queues take no pods while there is a fault in them: {session.queue_fault}"
            )
            found.update((task.uid, hold) for task in _asking_queues(session, job))
        elif book and _may_wait(job) and headroom.limits(job.queue):
            limited.append(job)
    key_of = session.tiers.job_key
    for job in sorted(limited, key=lambda each: (_lacks_members(each), each.is_pending, key_of(each))):
        found.update(_held_by_queue(session, job, headroom))
        yield
    for uid, why in given_back.items():
        found.setdefault(uid, Hold(QUEUE_FULL, why))
    if session.view.shard_full is not None and not unready:
        for job in session.jobs.values():
            held = _held_by_shard(session, job, found, session.view.shard_full)
            found.update(held)
            if held:
                yield
    return found


def _held_by_shard(
    session: Session, job: Job, held: Mapping[str, Hold], full: Callable[[Sequence[PodInfo]], str]
) -> Mapping[str, Hold]:
    """Those whose nodes are there, and are others'."""
    waiting = [
        task
        for task in (*job.by_status[TaskStatus.PIPELINED].values(), *_waiting(job))
        if task.uid not in held and not task.gated
    ]
    first, others = _needed(job, session.tiers.in_task_order(waiting))
    groups = [first, *([task] for task in others)] if first else [[task] for task in others]
    found: dict[str, Hold] = {}
    for tasks in groups:
        why = full([task.pod for task in tasks])
        if not why and tasks is first:
            # Without its minimum none of the gang has any use for a node.
            break
        if why:
            found.update((task.uid, Hold(NODE_SHARD_FULL, why)) for task in tasks)
    return found


def _may_wait(job: Job) -> bool:
    """Whether it has pods that want room in its queue, or wants some for pods that are to come."""
    return bool(job.in_statuses(_WAITING)) or job.is_pending or job.is_inqueue


def _lacks_members(job: Job) -> bool:
    """Whether nodes would be of no use to it yet: it keeps nobody from them who is there."""
    return len(_waiting(job)) + job.waiting + job.in_statuses(_HAS) < job.minimum


def _held_by_queue(session: Session, job: Job, headroom: Headroom) -> Mapping[str, Hold]:
    waiting = _waiting(job)
    if job.waiting:
        if session.tiers.job_pipelined(job):
            # The claims of its minimum are on room that others of its queue are about to leave.
            return _held_each(job, waiting, headroom)
        # Claims of some members alone, as reclaim leaves them, are of no use without the others.
        waiting = [*job.by_status[TaskStatus.PIPELINED].values(), *waiting]
    if len(waiting) > job.minimum - job.in_statuses(_HAS):
        # Some are above the minimum: always the same, or their conditions would change with each session.
        waiting = session.tiers.in_task_order(waiting)
        # For whom room is kept need nobody else's.
        waiting = sorted(waiting, key=lambda task: not headroom.is_kept(task.uid))
    first, others = _needed(job, waiting)
    short = headroom.take(job.queue, _wanted(job, first), [task.uid for task in first], job.uid)
    if short is not None:
        hold = _hold(short)
        return {task.uid: hold for task in waiting}
    return _held_each(job, others, headroom)


def _held_each(job: Job, tasks: Iterable[Task], headroom: Headroom) -> Mapping[str, Hold]:
    """Those for which, one after another, there is no room."""
    found = {}
    for task in tasks:
        short = headroom.take(job.queue, task.request, (task.uid,), job.uid)
        if short is not None:
            found[task.uid] = _hold(short)
    return found


def _hold(short: Shortfall) -> Hold:
    return Hold(QUEUE_FULL, str(short), short)


def _waiting(job: Job) -> list[Task]:
    return [task for status in _WAITING for task in job.by_status[status].values() if not task.gated]


def _asking_queues(session: Session, job: Job) -> list[Task]:
    """Those that wait and have no place before their queue gives them room, or the rest of their gang. One that asks
    for nothing is asked of no queue by itself, once its job is let in."""
    waiting = _waiting(job)
    if job.is_pending or not (session.tiers.job_ready(job) or all(task.best_effort for task in waiting)):
        return waiting
    return [task for task in waiting if not task.best_effort]


def _needed(job: Job, waiting: Iterable[Task]) -> tuple[list[Task], list[Task]]:
    """Those with which the job has its minimum, and the rest."""
    return needed(
        waiting,
        role_of=attrgetter("role"),
        more=job.minimum - job.in_statuses(_HAS),
        of_roles={role: least - job.in_role(role, _HAS) for role, least in job.role_minimums.items()},
    )


#: A task that is allocated in a gang that is not complete waits.
_HAS: Final = tuple(status for status in READY if status is not TaskStatus.ALLOCATED)


def _wanted(job: Job, first: Iterable[Task]) -> Vector:
    """What they ask for, and at least what the group says that it needs before it is let in."""
    total: Total = {}
    for task in first:
        add_to(total, task.request)
    if job.min_resources is not None and (job.is_pending or job.is_inqueue):
        for resource, amount in job.min_resources.items():
            least = amount - job.allocated.get(resource, 0)
            if least > total.get(resource, 0):
                total[resource] = least
    return total
