"""Lending: which tasks a job needs next, and whether its queue may hold them within its share.

Shares of queues are fractions of the cluster, but jobs are not divisible: if each of two gangs needs slightly more than
its queue's share, neither would ever run although nodes are idle. Therefore capacity that no job within its queue's
share needs is lent to jobs beyond it, and may be reclaimed (docs/decisions/0057).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter

from ..queues.asks import needed
from .demand import requests_of
from .model import READY, JobInfo, TaskInfo, TaskStatus
from .session import Session

_PLACED = (*READY, TaskStatus.PIPELINED)


@contextmanager
def lent(session: Session) -> Iterator[None]:
    """Return a context in which queues may exceed their shares, but no other limits."""
    plugins = session.tiers.every("lending")
    for hook in plugins:
        hook(True)
    yield
    for hook in plugins:
        hook(False)


def has_nominated(job: JobInfo) -> bool:
    """Return whether pods were evicted for waiting tasks of the job."""
    return any(task.pod.nominated_node_name for task in job.by_status[TaskStatus.PENDING].values())


def wanted_next(session: Session, job: JobInfo) -> Sequence[TaskInfo]:
    """Return the pending tasks that the job can only use together.

    They are the tasks missing for the minimums of the job or of its next sub-group, otherwise the next single task.
    Tasks with gates that the scheduler does not remove, and tasks without requests, are left out.
    """
    tiers = session.tiers
    may_be_lent = [
        task for task in job.by_status[TaskStatus.PENDING].values() if not task.best_effort and task.gets_free
    ]
    # Members without a gate come before members with the gate of their queue, and in both sets those with room kept in
    # the queue come first, since the queue may refuse the others.
    pending = sorted(
        tiers.in_pending_order(job, may_be_lent),
        key=lambda task: (task.pod.stands_by, task.gated, session.kept_first(task)),
    )
    if tiers.job_ready(job):
        sub_job = pending[0].sub_job if pending else None
        if sub_job is None or sub_job.is_pipelined:
            return pending[:1]
        lacking = sub_job.minimum - sub_job.ready - sub_job.best_effort - sub_job.waiting
        return [task for task in pending if task.sub_job is sub_job][:lacking]
    first, others = needed(
        pending,
        role_of=attrgetter("role"),
        more=job.minimum - job.ready - job.best_effort - job.waiting,
        of_roles={role: least - job.in_role(role, _PLACED) for role, least in job.role_minimums.items()},
    )
    return first or others[:1]


def may_hold(session: Session, job: JobInfo, tasks: Sequence[TaskInfo]) -> bool:
    """Return whether the job's queue stays within its share and its limits with these tasks.

    While room is lent, only the limits count.
    """
    uids = [task.uid for task in tasks]
    return session.tiers.may_hold(job, requests_of(tasks), uids)


def with_gangs(
    session: Session, reclaimer: TaskInfo, tasks: Sequence[TaskInfo], beyond: Sequence[TaskInfo]
) -> Sequence[TaskInfo]:
    """Return the tasks that may be evicted for the reclaimer.

    They are the tasks that a queue holds `beyond` its share. If one of these belongs to a gang that can spare no
    member, all of the gang are included, since room was lent to the gang as a whole. This applies only if the
    reclaimer's job stays within its queue's share: two jobs beyond theirs would evict each other in turns.
    """
    job = reclaimer.job
    if not (beyond and session.conf.work_conserving):
        return beyond
    broken = {task.job.uid for task in beyond if task.job.ready <= task.job.minimum}
    if not broken or not may_hold(session, job, wanted_next(session, job)):
        return beyond
    going: Mapping[str, TaskInfo] = {task.uid: task for task in beyond}
    return [task for task in tasks if task.uid in going or task.job.uid in broken]
