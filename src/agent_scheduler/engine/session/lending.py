"""What jobs want next, and whether it is within their queue's share: what is beyond is lent, and may be taken back.

Shares of queues are fractions of the cluster, and jobs are not: each of two gangs may need a little more than its
queue's share, so that neither would ever run beside idle nodes. Room that no job within its queue's share waits for is
therefore lent to jobs beyond it (docs/decisions/0057).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING

from ..state.asks import needed
from .demand import requests_of
from .model import READY, Job, Task, TaskStatus

if TYPE_CHECKING:
    from .session import Session

_PLACED = (*READY, TaskStatus.PIPELINED)


@contextmanager
def lent(session: Session) -> Iterator[None]:
    """Queues may hold more than their shares; what limits them otherwise does still."""
    plugins = session.tiers.every("lending")
    for told in plugins:
        told(True)
    yield
    for told in plugins:
        told(False)


def has_nominated(job: Job) -> bool:
    """Whether others were evicted for the sake of tasks that wait."""
    return any(task.pod.nominated_node_name for task in job.by_status[TaskStatus.PENDING].values())


def wanted_next(session: Session, job: Job) -> Sequence[Task]:
    """The pending tasks that are of use to a job only together: those that it, or its next sub-group, lacks of its
    minimums, or else its next one. None with another gate than that of its queue, and none that asks for nothing."""
    tiers = session.tiers
    may_be_lent = [
        task
        for task in job.by_status[TaskStatus.PENDING].values()
        if not task.best_effort and (not task.gated or task.only_queue_gate)
    ]
    # Members without a gate come before members behind the gate of their queue, and of both those for which room in the
    # queue is kept: the queue may refuse the others.
    pending = sorted(
        tiers.in_pending_order(job, may_be_lent),
        key=lambda task: (task.pod.stands_by, task.gated, not session.is_kept_for(task)),
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


def may_hold(session: Session, job: Job, tasks: Sequence[Task]) -> bool:
    """Whether the job's queue would hold no more than its share, nor than it may hold at most, with these of its tasks.
    While queues are lent room it is the latter alone."""
    uids = [task.uid for task in tasks]
    return session.tiers.may_hold(job, requests_of(tasks), uids)


def with_gangs(
    session: Session, reclaimer: Task, tasks: Sequence[Task], beyond: Sequence[Task]
) -> Sequence[Task]:
    """Of `tasks` those that may go for the reclaimer: those that a queue holds `beyond` its share, and, where a gang
    has one of these and can do without none, all of that gang, as it was lent room as a whole.

    Only for a job that is then within its queue's share: two jobs beyond theirs would be evicted for one another in
    turns.
    """
    job = reclaimer.job
    if not (beyond and session.conf.work_conserving):
        return beyond
    broken = {task.job.uid for task in beyond if task.job.ready <= task.job.minimum}
    if not broken or not may_hold(session, job, wanted_next(session, job)):
        return beyond
    going: Mapping[str, Task] = {task.uid: task for task in beyond}
    return [task for task in tasks if task.uid in going or task.job.uid in broken]
