"""What each group of a session waits for, and each of its pods.

A gang that has not its minimum waits as a whole: a member that would fit says what keeps the others back, and asks for
nodes only if these would help the gang. What limits a queue here is what it declares: one that waits since all of the
cluster is in use does want nodes (docs/decisions/0032, 0060).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from agent_scheduler.objects.batch import COMPLETED

from ..quotas.book import QuotaBook
from ..quotas.headroom import Headroom
from ..quotas.vector import Total, Vector, add_to, plus
from ..state.asks import needed
from ..state.batchinfo import GroupKey
from ..state.podinfo import PodInfo
from ..verdicts import Verdict, Wait, by_nodes, by_queue, of_own_gates, others_gated, too_few
from .demand import requests_of
from .lending import may_hold, wanted_next
from .model import READY, Job, Task, TaskStatus
from .settled import STRIDE

if TYPE_CHECKING:
    from .session import Session

NOBODY: Final[Mapping[str, str]] = MappingProxyType({})

_WAITING: Final = (TaskStatus.PENDING, TaskStatus.ALLOCATED)
#: Tasks that run, or still may.
_VALID: Final = (*READY, TaskStatus.PIPELINED, TaskStatus.PENDING)

#: What the session said of groups that it did not let into their queue.
Told = Mapping[GroupKey, str]


def of_group(session: Session, job: Job, held: Mapping[str, Verdict], told: Told) -> Verdict | None:
    """None for a gang that has its minimum, or has ended. `held`: as of `holds`."""
    tiers = session.tiers
    hold = _hold_of(job, held) if job.is_pending else None
    if hold is not None and hold.wait in (Wait.QUEUE, Wait.QUOTA):
        return hold
    if job.phase == COMPLETED or (job.tasks and tiers.job_ready(job)):
        return None
    not_let_in = told.get(job.group.key, "its turn to be let into the queue has not come")
    if not job.tasks and job.is_pending:
        # No pods are made of a Job before its group is let in.
        return _hold_of_coming(session, job) or Verdict(Wait.ADMISSION, not_let_in)
    hold = hold or _hold_of(job, held)
    if hold is not None and hold.is_closed:
        return hold
    invalid = tiers.invalid(job)
    if invalid is not None:
        return too_few(0, 0, invalid.message)._replace(of_group=invalid.reason)
    if not job.tasks:
        return too_few(0, 0, "it has no pods")
    if job.waiting and tiers.job_pipelined(job):
        return Verdict(Wait.RELEASE, f"{job.waiting} of its pods have a claim on room that pods are leaving")
    if gated := _gated_of(job):
        return others_gated(len(gated), len(job.tasks), sum(task.only_queue_gate for task in gated))
    if hold is not None:
        return hold
    return Verdict(Wait.ADMISSION, not_let_in) if job.is_pending else _of_nodes(session, job)


def of_task(task: Task, group: Verdict | None, held: Mapping[str, Verdict], message: str) -> Verdict:
    """Of one that has no node. `group`: what its gang waits for; `message`: what the session says of the task.

    One that stands by until others of its Job have run is given a node with these (docs/decisions/0047): as long as it
    has none, and a node would help, it says so.
    """
    if task.gated:
        return of_own_gates(stands_by=False)
    found = _of_open(task, group, held, message)
    if task.pod.stands_by:
        wants_node = found.wants_nodes and task.status is TaskStatus.PENDING and _has_others_first(task.job)
        return found if wants_node else of_own_gates(stands_by=True)
    return found


def _has_others_first(job: Job) -> bool:
    """Whether any of its tasks that run, or still may, is bound before those that stand by: without it these are given
    no nodes."""
    return any(not task.pod.stands_by for status in _VALID for task in job.by_status[status].values())


def _of_open(task: Task, group: Verdict | None, held: Mapping[str, Verdict], message: str) -> Verdict:
    if group is not None and group.wait in (Wait.MEMBERS, Wait.GATES):
        return group
    if held and task.uid in held:
        return held[task.uid]
    if group is not None and group.wait == Wait.QUEUE:
        # Others are held without which the gang has not its minimum: a node would not help this one either.
        return group
    found = task.job.fit_errors.get(task.uid)
    return Verdict(Wait.NODES, message) if found is None else by_nodes(message, found.plugins)


def _hold_of_coming(session: Session, job: Job) -> Verdict | None:
    """What keeps a group out of its queue for which no pods are made yet, if no node would help."""
    if job.quota_refusal:
        return Verdict(Wait.QUOTA, job.quota_refusal)
    short = None if session.promises is None else session.promises.shortfall(job.group.key)
    return None if short is None else by_queue(short)


def _hold_of(job: Job, held: Mapping[str, Verdict]) -> Verdict | None:
    """What keeps the gang back that no node would help: those of its pods that are not held do not make its minimum."""
    if not held:
        return None
    waiting = [*job.by_status[TaskStatus.PIPELINED].values(), *_waiting(job)]
    found = next((held[task.uid] for task in waiting if task.uid in held), None)
    if found is None:
        return None
    first, _ = _needed(job, [task for task in waiting if task.uid not in held])
    lacking = max(job.minimum - job.in_statuses(_HAS), 1)
    of_roles = Counter(task.role for task in first)
    short = any(of_roles[role] < least - job.in_role(role, _HAS) for role, least in job.role_minimums.items())
    return found if short or len(first) < lacking else None


def _gated_of(job: Job) -> list[Task]:
    """Those of its pods that have gates, if those that have none are fewer than it needs."""
    gated = [task for task in job.by_status[TaskStatus.PENDING].values() if task.gated]
    if not gated:
        return []
    if job.in_statuses(_VALID) - len(gated) < job.minimum:
        return gated
    roles = Counter(task.role for task in gated)
    lacks = any(
        job.in_role(role, _VALID, best_effort=True) - roles[role] < least
        for role, least in job.role_minimums.items()
    )
    return gated if lacks else []


def _of_nodes(session: Session, job: Job) -> Verdict:
    refusals = Counter(error.message for error in job.fit_errors.values())
    if not refusals:
        wanted = wanted_next(session, job)
        if session.tiers.every("lending") and wanted and not may_hold(session, job, wanted):
            return Verdict(
                Wait.NODES, "it needs more than its queue's share of what is in the cluster has left"
            )
        return Verdict(Wait.NODES, "its queue has all that it may have of what is in the cluster")
    plugins = frozenset[str]().union(*(error.plugins for error in job.fit_errors.values()))
    return by_nodes(refusals.most_common(1)[0][0], plugins)


def wanting_nodes(
    job: Job, verdict: Verdict | None, held: Container[str], reserved: Container[str]
) -> list[tuple[str, Vector]]:
    """UIDs of pods that say that they want nodes, one of all that are alike, and what their queue is to have room for
    beside what is `reserved`, for else they would not: the minimum of their gang, or, where it has that, the pod."""
    if verdict is not None and not verdict.wants_nodes:
        return []
    waiting = _waiting(job)
    asking = [task for task in waiting if task.uid not in held and task.uid not in reserved]
    if verdict is None:
        return list({id(task.request): (task.uid, task.request) for task in asking}.values())
    first, _ = _needed(job, asking)
    kept = [task for task in waiting if task.uid in reserved]
    return [(first[0].uid, _wanted(job, first, kept))] if first else []


def holds(
    session: Session, book: QuotaBook, given_back: Mapping[str, str] = NOBODY
) -> Generator[None, None, tuple[dict[str, Verdict], Mapping[str, Vector]]]:
    """UID -> what keeps the task back that no node would help, of those that wait, when the actions are done. And what
    those of the others that are in jobs which were let in want in their queues and in those above these, where no room
    is kept for them.

    A gang is held if its queue has not what its members lack of the minimum, or there is a fault in the tree of queues;
    else those members are that are above the minimum and do not fit. Gangs that were let into their queue come first,
    then the others, each in the order of jobs. A job at a time. `given_back`: UID -> what to say of pods that have
    given back what was reserved for them.
    """
    found: dict[str, Verdict] = {}
    headroom = book.headroom()
    limited: list[Job] = []
    unready = session.view.unready
    for number, job in enumerate(session.jobs.values()):
        if not number % STRIDE:
            yield
        if unready:
            hold = Verdict(Wait.SHARD, f"0/{session.nodes.count} nodes are available: {unready}.")
            found.update((task.uid, hold) for task in _waiting(job))
        elif job.quota_refusal:
            hold = Verdict(Wait.QUOTA, job.quota_refusal)
            found.update((task.uid, hold) for task in _waiting(job))
        elif session.queue_fault:
            hold = Verdict(
                Wait.QUEUE, f"queues take no pods while there is a fault in them: {session.queue_fault}"
            )
            found.update((task.uid, hold) for task in _asking_queues(session, job))
        elif book and _may_wait(job) and headroom.limits(job.queue):
            limited.append(job)
    key_of = session.tiers.job_key
    wanted: Mapping[str, Vector] | None = None
    for job in sorted(limited, key=lambda each: (each.is_pending, _lacks_members(each), key_of(each))):
        if job.is_pending and wanted is None:
            wanted = headroom.taken()
        found.update(_held_by_queue(session, job, headroom))
        yield
    for uid, why in given_back.items():
        found.setdefault(uid, Verdict(Wait.QUEUE, why))
    if session.view.shard_full is not None and not unready:
        for job in session.jobs.values():
            held = _held_by_shard(session, job, found, session.view.shard_full)
            found.update(held)
            if held:
                yield
    return found, headroom.taken() if wanted is None else wanted


def _held_by_shard(
    session: Session, job: Job, held: Mapping[str, Verdict], full: Callable[[Sequence[PodInfo]], str]
) -> Mapping[str, Verdict]:
    """Those whose nodes are there, and are others'."""
    waiting = [
        task
        for task in (*job.by_status[TaskStatus.PIPELINED].values(), *_waiting(job))
        if task.uid not in held and not task.gated
    ]
    first, others = _needed(job, session.tiers.in_task_order(waiting))
    groups = [first, *([task] for task in others)] if first else [[task] for task in others]
    found: dict[str, Verdict] = {}
    for tasks in groups:
        why = full([task.pod for task in tasks])
        if not why and tasks is first:
            # Without its minimum none of the gang has any use for a node.
            break
        if why:
            found.update((task.uid, Verdict(Wait.SHARD_FULL, why)) for task in tasks)
    return found


def _may_wait(job: Job) -> bool:
    """Whether it has pods that want room in its queue, or wants some for pods that are to come."""
    return bool(job.in_statuses(_WAITING)) or job.is_pending or job.is_inqueue


def _lacks_members(job: Job) -> bool:
    """Whether nodes would be of no use to it yet: it keeps nobody from them who is there."""
    return len(_waiting(job)) + job.waiting + job.in_statuses(_HAS) < job.minimum


def _held_by_queue(session: Session, job: Job, headroom: Headroom) -> Mapping[str, Verdict]:
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
        waiting = sorted(waiting, key=lambda task: not session.is_kept_for(task))
    first, others = _needed(job, waiting)
    # Members that lack others take no room from who waits behind them, but what is reserved for them.
    taking = [task for task in first if session.is_kept_for(task)] if _lacks_members(job) else first
    kept = [task for task in others if session.is_kept_for(task)]
    wanted = _wanted(job, taking, kept)
    short = headroom.take(job.queue, wanted, [task.uid for task in taking], job.uid)
    if short is not None:
        hold = by_queue(short)
        return {task.uid: hold for task in waiting}
    return _held_each(job, others, headroom)


def _held_each(job: Job, tasks: Iterable[Task], headroom: Headroom) -> Mapping[str, Verdict]:
    """Those for which, one after another, there is no room."""
    found = {}
    for task in tasks:
        short = headroom.take(job.queue, task.request, (task.uid,), job.uid)
        if short is not None:
            found[task.uid] = by_queue(short)
    return found


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


def _wanted(job: Job, first: Iterable[Task], kept: Iterable[Task]) -> Vector:
    """What the `first` ask for. Until the group has its minimum, it is at least what the group says that it needs to
    run, less what its members have, and what is kept for other members than these. A group is Inqueue still in the
    session in which it gets its minimum."""
    total: Total = {}
    for task in first:
        add_to(total, task.request)
    waits = job.is_pending or (job.is_inqueue and job.in_statuses(_HAS) < job.minimum)
    if job.min_resources is not None and waits:
        held = plus(job.allocated, requests_of(kept))
        for resource, amount in job.min_resources.items():
            least = amount - held.get(resource, 0)
            if least > total.get(resource, 0):
                total[resource] = least
    return total
