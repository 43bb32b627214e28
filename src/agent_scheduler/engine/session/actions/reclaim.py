"""reclaim: evicts tasks of queues beyond their share for starving jobs (`pkg/scheduler/actions/reclaim`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial

from ..model import JobInfo, TaskInfo, TaskStatus
from ..session import Session
from ..statement import Statement
from ..victims import make_room, rows_for, takes_free_room
from ..worklist import Worklist

_REASON = "reclaim"


def reclaim(session: Session) -> Iterator[None]:
    """Evict tasks of other, reclaimable queues for each starving job, if the job then has its minimum."""
    tiers = session.tiers
    work = Worklist(session)
    for job in session.jobs.values():
        if job.is_pending or tiers.invalid(job) is not None:
            continue
        work.know(job.queue)
        if tiers.starving(job):
            work.add(job)
    while work.queues:
        queue = work.queues.pop()
        if tiers.overused(queue):
            continue
        jobs = work.know(queue.name)
        while jobs:
            yield from _for_job(session, jobs.pop())


def _for_job(session: Session, job: JobInfo) -> Iterator[None]:
    tiers, queue = session.tiers, session.queues[job.queue]
    pending = [task for task in job.by_status[TaskStatus.PENDING].values() if not task.gated]
    tasks = deque(tiers.in_pending_order(job, pending))
    statement = Statement(session)
    while tasks and tiers.starving(job):
        task = tasks.popleft()
        if task.pod.preempts and tiers.preemptive(queue, task):
            _evict_for(statement, task)
        yield
    if tiers.job_pipelined(job):
        statement.commit()
    else:
        statement.discard()


def _evict_for(statement: Statement, reclaimer: TaskInfo) -> None:
    session, job = statement.session, reclaimer.job

    def which(task: TaskInfo) -> bool:
        return (
            task.status is TaskStatus.RUNNING
            and task.preemptable
            and task.job.queue != job.queue
            and session.queues[task.job.queue].reclaimable
        )

    # The first deciding tier ends the vote, for example with gang, which allows the surplus members of any gang. Tasks
    # within their queue's share would be evicted, and reclaimed in turn. So plugins of shares must agree as well.
    vote = partial(session.tiers.reclaimable, beyond_share=session.conf.work_conserving)
    if takes_free_room(statement, reclaimer):
        return
    for row in rows_for(session, reclaimer):
        if any(map(which, session.nodes.tasks_on(row))) and make_room(
            statement, reclaimer, row, which=which, vote=vote, reason=_REASON
        ):
            return
