"""backfill: places pending best-effort tasks (`pkg/scheduler/actions/backfill`)."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from ..model import JobInfo, TaskInfo, TaskStatus
from ..session import Session
from ..worklist import Worklist


def backfill(session: Session) -> Iterator[None]:
    """Place each best-effort task separately. A job's placed tasks are committed when its gang is complete."""
    nodes = session.nodes
    last: JobInfo | None = None
    for task in (yield from _waiting(session)):
        job = task.job
        if last is not None and last is not job:
            nodes.let_go(last.by_status[TaskStatus.ALLOCATED].values())
        last = job
        view = nodes.view(task)
        row = nodes.best(task, view)
        if row is None:
            job.fail(task, nodes.why_not(task, view, room=False))
        elif session.allocate(task, row, view) is not None and session.tiers.job_ready(job):
            session.bind(list(job.by_status[TaskStatus.ALLOCATED].values()))
        yield
    if last is not None:
        nodes.let_go(last.by_status[TaskStatus.ALLOCATED].values())


def _waiting(session: Session) -> Generator[None, None, list[TaskInfo]]:
    """Return the waiting best-effort tasks in the order of queues, jobs and tasks."""
    tiers = session.tiers
    work = Worklist(session)
    found: dict[str, list[TaskInfo]] = {}
    for job in session.fresh:
        yield
        if job.is_pending or tiers.invalid(job) is not None:
            continue
        tasks = [task for task in job.by_status[TaskStatus.PENDING].values() if task.best_effort and not task.gated]
        for task in [task for task in job.by_status[TaskStatus.PIPELINED].values() if task.best_effort]:
            session.unplace(task)
            tasks.append(task)
        if tasks:
            found[job.uid] = tiers.in_task_order(tasks)
            work.add(job)
    order: list[TaskInfo] = []
    while work.queues:
        jobs = work.know(work.queues.pop().name)
        while jobs:
            order += found[jobs.pop().uid]
    return order
