"""Determines what each group of a session, and each of its pods, waits for.

A gang without its minimum waits as a whole: a member that would fit reports why the others wait, and requests nodes
only if they would help the gang. Only the declared limits of a queue count here: a gang that waits because the cluster
is in use does want nodes (docs/decisions/0032, 0060).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Final

from agent_scheduler.objects.batch import COMPLETED

from ..queues.asks import needed
from ..queues.book import QuotaBook
from ..queues.headroom import Headroom
from ..quotas.vector import Total, Vector, add_to, plus
from ..state.batchinfo import GroupKey
from ..state.podinfo import PodInfo
from ..verdicts import Verdict, WaitReason, by_nodes, by_queue, of_own_gates, others_gated, too_few
from .demand import requests_of
from .lending import may_hold, wanted_next
from .model import READY, JobInfo, TaskInfo, TaskStatus
from .session import Session
from .settled import STRIDE

NOBODY: Final[Mapping[str, str]] = MappingProxyType({})

_WAITING: Final = (TaskStatus.PENDING, TaskStatus.ALLOCATED)
#: Statuses of tasks that run, have succeeded or may still run.
_VALID: Final = (*READY, TaskStatus.PIPELINED, TaskStatus.PENDING)

#: Group -> the session's message why it did not admit the group to its queue.
GroupMessages = Mapping[GroupKey, str]


def of_group(session: Session, job: JobInfo, held: Mapping[str, Verdict], messages: GroupMessages) -> Verdict | None:
    """Return what a gang waits for; None if it has its minimum or has ended. `held` is a result of `holds`."""
    tiers = session.tiers
    hold = _hold_of(job, held) if job.is_pending else None
    if hold is not None and hold.wait in (WaitReason.QUEUE, WaitReason.ACCESS, WaitReason.QUOTA):
        return hold
    if job.phase == COMPLETED or (job.tasks and tiers.job_ready(job)):
        return None
    not_let_in = messages.get(job.group.key, "its turn to be let into the queue has not come")
    if not job.tasks and job.is_pending:
        # The pods of a Job are created after its group is admitted.
        return _hold_of_coming(session, job) or Verdict(WaitReason.ADMISSION, not_let_in)
    hold = hold or _hold_of(job, held)
    if hold is not None and hold.is_closed:
        return hold
    invalid = tiers.invalid(job)
    if invalid is not None:
        return too_few(0, 0, invalid.message)._replace(of_group=invalid.reason)
    if not job.tasks:
        return too_few(0, 0, "it has no pods")
    if job.waiting and tiers.job_pipelined(job):
        return Verdict(WaitReason.RELEASE, f"{job.waiting} of its pods have a claim on room that pods are leaving")
    if gated := _gated_of(job):
        return others_gated(len(gated), len(job.tasks), sum(task.only_queue_gate for task in gated))
    if hold is not None:
        return hold
    return Verdict(WaitReason.ADMISSION, not_let_in) if job.is_pending else _of_nodes(session, job)


def of_task(task: TaskInfo, group: Verdict | None, held: Mapping[str, Verdict], message: str) -> Verdict:
    """Return what a task without a node waits for.

    `group` is what its gang waits for, `message` the session's message about the task. A task of a later stage of a Job
    is reserved on a node together with the earlier stages (docs/decisions/0047): without a reservation it reports that
    it wants a node, if a node would help.
    """
    if task.gated:
        return of_own_gates(stands_by=False)
    found = _of_open(task, group, held, message)
    if task.pod.stands_by:
        wants_node = found.wants_nodes and task.status is TaskStatus.PENDING and _has_others_first(task.job)
        return found if wants_node else of_own_gates(stands_by=True)
    return found


def _has_others_first(job: JobInfo) -> bool:
    """Return whether any task that runs or may run belongs to an earlier stage than the reserved ones.

    Without such a task, those of later stages are not reserved on nodes.
    """
    return any(not task.pod.stands_by for status in _VALID for task in job.by_status[status].values())


def _of_open(task: TaskInfo, group: Verdict | None, held: Mapping[str, Verdict], message: str) -> Verdict:
    if group is not None and group.wait in (WaitReason.MEMBERS, WaitReason.GATES):
        return group
    if held and task.uid in held:
        return held[task.uid]
    if group is not None and group.wait == WaitReason.QUEUE:
        # Members of the minimum are held, so a node would not help this task either.
        return group
    found = task.job.fit_errors.get(task.uid)
    return Verdict(WaitReason.NODES, message) if found is None else by_nodes(message, found.plugins)


def _hold_of_coming(session: Session, job: JobInfo) -> Verdict | None:
    """Return why a group without pods is not admitted to its queue; None if nodes would help."""
    if job.quota_refusal:
        return Verdict(WaitReason.QUOTA, job.quota_refusal)
    short = None if session.promises is None else session.promises.shortfall(job.group.key)
    return None if short is None else by_queue(short)


def _hold_of(job: JobInfo, held: Mapping[str, Verdict]) -> Verdict | None:
    """Return why no node would help the gang: the pods that are not held are fewer than its minimum; else None."""
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


def _gated_of(job: JobInfo) -> list[TaskInfo]:
    """Return the pods with gates, if those without gates are fewer than the minimum; otherwise none."""
    gated = [task for task in job.by_status[TaskStatus.PENDING].values() if task.gated]
    if not gated:
        return []
    if job.in_statuses(_VALID) - len(gated) < job.minimum:
        return gated
    roles = Counter(task.role for task in gated)
    lacks = any(
        job.in_role(role, _VALID, best_effort=True) - roles[role] < least for role, least in job.role_minimums.items()
    )
    return gated if lacks else []


def _of_nodes(session: Session, job: JobInfo) -> Verdict:
    refusals = Counter(error.message for error in job.fit_errors.values())
    if not refusals:
        wanted = wanted_next(session, job)
        if session.tiers.every("lending") and wanted and not may_hold(session, job, wanted):
            return Verdict(WaitReason.NODES, "it needs more than its queue's share of what is in the cluster has left")
        return Verdict(WaitReason.NODES, "its queue has all that it may have of what is in the cluster")
    plugins = frozenset[str]().union(*(error.plugins for error in job.fit_errors.values()))
    return by_nodes(refusals.most_common(1)[0][0], plugins)


def wanting_nodes(
    job: JobInfo, verdict: Verdict | None, held: Container[str], reserved: Container[str]
) -> list[tuple[str, Vector]]:
    """Return the pods that report that they want nodes: (UID, vector), one for all equal pods.

    They only want nodes while the queue has room for the vector in addition to what is `reserved`. The vector is the
    minimum of their gang or, if the gang has it, the request of the pod.
    """
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
    """Compute after the actions, in steps of one job, which waiting tasks are held, that is, no node would help them.

    A gang is held if its queue lacks room for the rest of the minimum, or if the tree of queues is invalid; otherwise
    its members beyond the minimum are held that do not fit. Admitted gangs come first, then the others, each in the
    order of jobs. `given_back` maps the UIDs of pods that returned their reservation to the message to report.

    Returns UID -> reason of the held tasks, and queue -> what the other tasks of admitted jobs want in the queue and
    its children, without those for which room is kept.
    """
    found: dict[str, Verdict] = {}
    headroom = book.headroom()
    limited: list[JobInfo] = []
    unready = session.view.unready
    for number, job in enumerate(session.jobs.values()):
        if not number % STRIDE:
            yield
        if unready:
            hold = Verdict(WaitReason.SHARD, f"0/{session.nodes.count} nodes are available: {unready}.")
            found.update((task.uid, hold) for task in _waiting(job))
        elif job.quota_refusal:
            hold = Verdict(WaitReason.QUOTA, job.quota_refusal)
            found.update((task.uid, hold) for task in _waiting(job))
        elif session.queue_fault:
            hold = Verdict(
                WaitReason.QUEUE, f"queues take no pods while there is a fault in them: {session.queue_fault}"
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
        found.setdefault(uid, Verdict(WaitReason.QUEUE, why))
    if session.view.shard_full is not None and not unready:
        for job in session.jobs.values():
            held = _held_by_shard(session, job, found, session.view.shard_full)
            found.update(held)
            if held:
                yield
    return found, headroom.taken() if wanted is None else wanted


def _held_by_shard(
    session: Session, job: JobInfo, held: Mapping[str, Verdict], full: Callable[[Sequence[PodInfo]], str]
) -> Mapping[str, Verdict]:
    """Return the tasks that would fit on nodes of other shards."""
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
            # Without the minimum, no other member of the gang can use a node.
            break
        if why:
            found.update((task.uid, Verdict(WaitReason.SHARD_FULL, why)) for task in tasks)
    return found


def _may_wait(job: JobInfo) -> bool:
    """Return whether the job may want room in its queue, for its pods or for pods that do not exist so far."""
    return bool(job.in_statuses(_WAITING)) or job.is_pending or job.is_inqueue


def _lacks_members(job: JobInfo) -> bool:
    """Return whether the job has too few members to use nodes, so that it must not keep other jobs from them."""
    return len(_waiting(job)) + job.waiting + job.in_statuses(_HAS) < job.minimum


def _held_by_queue(session: Session, job: JobInfo, headroom: Headroom) -> Mapping[str, Verdict]:
    waiting = _waiting(job)
    if job.waiting:
        if session.tiers.job_pipelined(job):
            # The minimum has claims on room that other pods of its queue are about to leave.
            return _held_each(job, waiting, headroom)
        # Claims of only some members, which reclaim may leave, cannot be used without the others.
        waiting = [*job.by_status[TaskStatus.PIPELINED].values(), *waiting]
    if len(waiting) > job.minimum - job.in_statuses(_HAS):
        # Some are beyond the minimum. Sort, so that they are the same in each session and conditions do not change.
        waiting = session.tiers.in_task_order(waiting)
        # Tasks with kept room need no other room, so they come first.
        waiting = sorted(waiting, key=session.kept_first)
    first, others = _needed(job, waiting)
    # A gang that lacks members uses no room that later gangs wait for, except for the room reserved for its members.
    taking = [task for task in first if session.is_kept_for(task)] if _lacks_members(job) else first
    kept = [task for task in others if session.is_kept_for(task)]
    wanted = _wanted(job, taking, kept)
    short = headroom.take(job.queue, wanted, [task.uid for task in taking], job.uid)
    if short is not None:
        hold = by_queue(short)
        return {task.uid: hold for task in waiting}
    return _held_each(job, others, headroom)


def _held_each(job: JobInfo, tasks: Iterable[TaskInfo], headroom: Headroom) -> Mapping[str, Verdict]:
    """Return the tasks without room, where each task is counted before the next one is checked."""
    found = {}
    for task in tasks:
        short = headroom.take(job.queue, task.request, (task.uid,), job.uid)
        if short is not None:
            found[task.uid] = by_queue(short)
    return found


def _waiting(job: JobInfo) -> list[TaskInfo]:
    return [task for status in _WAITING for task in job.by_status[status].values() if not task.gated]


def _asking_queues(session: Session, job: JobInfo) -> list[TaskInfo]:
    """Return the waiting tasks that depend on their queue, for themselves or for the rest of their gang.

    A best-effort task of an admitted job with its minimum does not.
    """
    waiting = _waiting(job)
    if job.is_pending or not (session.tiers.job_ready(job) or all(task.best_effort for task in waiting)):
        return waiting
    return [task for task in waiting if not task.best_effort]


def _needed(job: JobInfo, waiting: Iterable[TaskInfo]) -> tuple[list[TaskInfo], list[TaskInfo]]:
    """Split tasks into those that the job needs for its minimum and the rest."""
    return needed(
        waiting,
        role_of=attrgetter("role"),
        more=job.minimum - job.in_statuses(_HAS),
        of_roles={role: least - job.in_role(role, _HAS) for role, least in job.role_minimums.items()},
    )


#: Statuses in which a task counts for the minimum; an allocated task of an incomplete gang still waits.
_HAS: Final = tuple(status for status in READY if status is not TaskStatus.ALLOCATED)


def _wanted(job: JobInfo, first: Iterable[TaskInfo], kept: Iterable[TaskInfo]) -> Vector:
    """Return the requests of the `first` tasks.

    Until the group has its minimum, the result is at least the group's `minResources` without what its members hold and
    what is kept for other members. The phase is still Inqueue in the session in which a group gets its minimum.
    """
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
