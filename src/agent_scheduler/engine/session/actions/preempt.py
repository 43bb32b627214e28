"""preempt: evicts tasks of lower-ordered jobs of the same queue for starving jobs (`pkg/scheduler/actions/preempt`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator

from ..model import JobInfo, TaskInfo, TaskStatus
from ..session import Session
from ..statement import Statement
from ..victims import EVICTABLE, make_room, rows_for, takes_free_room
from ..worklist import JobHeap

_REASON = "preempt"


def preempt(session: Session) -> Iterator[None]:
    """Evict tasks of other jobs, if the starving job then has its minimum, then tasks of the job itself.

    Within a job, tasks are evicted for tasks of the job that come before them.
    """
    tiers = session.tiers
    starving: list[JobInfo] = []
    by_queue: dict[str, JobHeap] = {}
    for job in session.jobs.values():
        if not job.is_pending and tiers.invalid(job) is None and tiers.starving(job):
            starving.append(job)
            by_queue.setdefault(job.queue, JobHeap(session)).push(job)
    for _, jobs in sorted(by_queue.items()):
        waiting: dict[str, deque[TaskInfo]] = {}
        while jobs:
            job = jobs.pop()
            tasks = waiting.setdefault(job.uid, _pending(session, job))
            if (yield from _for_job(session, job, tasks)):
                jobs.push(job)
        for job in starving:
            yield from _within(session, job)


def _pending(session: Session, job: JobInfo) -> deque[TaskInfo]:
    tasks = [task for task in job.by_status[TaskStatus.PENDING].values() if not task.gated]
    return deque(session.tiers.in_pending_order(job, tasks))


def _for_job(session: Session, job: JobInfo, tasks: deque[TaskInfo]) -> Generator[None, None, bool]:
    """Evict for the pending tasks of a job. Returns whether to process the job again."""
    tiers = session.tiers
    statement = Statement(session)
    assigned = False
    while tasks and tiers.starving(job):
        assigned = _evict_for(statement, tasks.popleft(), of_job=False)
        yield
    if not tiers.job_pipelined(job):
        statement.discard()
        return False
    statement.commit()
    return assigned


def _within(session: Session, job: JobInfo) -> Iterator[None]:
    tasks = _pending(session, job)
    while tasks:
        statement = Statement(session)
        assigned = _evict_for(statement, tasks.popleft(), of_job=True)
        if session.conf.work_conserving and not session.tiers.job_pipelined(job):
            # Without the rest of its gang, the task would keep the room from jobs that can use it.
            statement.discard()
            return
        statement.commit()
        yield
        if not assigned:
            return


def _evict_for(statement: Statement, preemptor: TaskInfo, *, of_job: bool) -> bool:
    session, job = statement.session, preemptor.job
    if not preemptor.pod.preempts:
        return False

    def which(task: TaskInfo) -> bool:
        if task.status not in EVICTABLE or (preemptor.best_effort and not task.best_effort):
            return False
        if of_job:
            return task.job is job
        return task.preemptable and task.job is not job and task.job.queue == job.queue

    return takes_free_room(statement, preemptor) or any(
        make_room(statement, preemptor, row, which=which, vote=session.tiers.preemptable, reason=_REASON)
        for row in rows_for(session, preemptor)
    )
