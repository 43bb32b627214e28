"""Nodes for the pending tasks of jobs that are Inqueue or run (`pkg/scheduler/actions/allocate`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from ...gangs.group import INQUEUE
from ..fit import FitErrors
from ..model import READY, Job, SubJob, Task, TaskStatus
from ..statement import Statement
from ..together import place_together
from ..worklist import Worklist

if TYPE_CHECKING:
    from ..session import Session

Tasks = deque[Task]
#: Sub-group -> its tasks; of a job without sub-groups there is one, with no name.
Sheet = dict[str, Tasks]


def allocate(session: Session) -> Iterator[None]:
    """A job gets nodes until its gang is complete. What is above that comes when the other jobs had their turn."""
    tiers = session.tiers
    work = Worklist(tiers, session.queues)
    sheets: dict[str, Sheet] = {}
    for job in session.fresh:
        if job.is_pending:
            if "enqueue" in session.conf.actions:
                continue
            job.phase = INQUEUE
        if tiers.invalid(job) is None and (sheet := _sheet(session, job)):
            sheets[job.uid] = sheet
            work.add(job)
        yield
    for name in sorted(session.settled_queues):
        # They are asked whether they are overused, which their gauges say.
        work.know(name)
    while work.queues:
        queue = work.queues.pop()
        if tiers.overused(queue):
            continue
        jobs = work.know(queue.name)
        if not jobs:
            continue
        job = jobs.pop()
        sheet = sheets[job.uid]
        statement = Statement(session)
        placed = False
        if job.group.sub_groups:
            placed = yield from _place_sub_jobs(statement, job, sheet)
        elif session.nodes.count:
            placed = yield from _place(statement, job, None, sheet[""])
        if placed and tiers.job_ready(job):
            statement.commit()
            if any(sheet.values()):
                jobs.push(job)
        elif placed:
            # A gang that waits for room which is about to be free keeps its claims, and nothing is sent.
            session.nodes.let_go(job.by_status[TaskStatus.ALLOCATED].values())
        work.queues.push(queue)
        yield


def _sheet(session: Session, job: Job) -> Sheet:
    """The pending tasks that may be placed: not those that ask for nothing, nor those that any gate but the queue's own
    holds."""
    sheet: dict[str, list[Task]] = {}
    for task in job.by_status[TaskStatus.PENDING].values():
        if not task.best_effort and (not task.gated or task.only_queue_gate):
            sheet.setdefault(task.sub_job.uid if task.sub_job is not None else "", []).append(task)
    in_order = session.tiers.in_pending_order
    return {name: deque(in_order(job, tasks)) for name, tasks in sheet.items()}


def _place(
    statement: Statement, job: Job, sub_job: SubJob | None, tasks: Tasks
) -> Generator[None, None, bool]:
    """Nodes for tasks until the job, or its sub-group, is ready. False: it is not, nor will be when room that is about
    to be free is; then all is taken back."""
    session = statement.session
    tiers, nodes, queue = session.tiers, session.nodes, session.queues[job.queue]
    refused: list[Task] = []
    while tasks:
        task = tasks.popleft()
        if not tiers.allocatable(queue, task):
            session.held_back.add(job.uid)
            continue
        if task.gated:
            if session.admits_gated and task.gate_managed:
                session.admit_gated(task)
            continue
        if task.role and task.role in job.failed_roles(sub_job):
            text = f"Task {task.pod.name} with role spec {task.role} has already predicated failed, skip"
            job.fail(task, FitErrors(text))
            refused.append(task)
            continue
        view = nodes.view(task)
        row = nodes.best(task, view)
        if row is None:
            job.fail(task, nodes.why_not(task, view))
            refused.append(task)
            if view.rejection is None and _goes_on(job, sub_job):
                continue
            break
        if not nodes.has_room(task, row):
            statement.pipeline(task, row)
        elif not statement.allocate(task, row, view):
            session.held_back.add(job.uid)
            continue
        if tiers.sub_job_ready(job, sub_job):
            break
        yield
    if tiers.sub_job_ready(job, sub_job) or tiers.sub_job_pipelined(job, sub_job):
        return True
    placed = [operation.task for operation in statement.operations]
    statement.discard()
    if not refused:
        return False
    left = [*refused, *(task for task in tasks if not task.gated)]
    together = yield from place_together(statement, job, sub_job, placed, left)
    if together:
        uids = {task.uid for task in together}
        kept = [task for task in (*placed, *refused, *tasks) if task.uid not in uids]
        tasks.clear()
        tasks.extend(kept)
    return bool(together)


def _goes_on(job: Job, sub_job: SubJob | None) -> bool:
    """Whether the job may still become ready though a task found no node (`NeedContinueAllocating`)."""
    if job.minimum == len(job.tasks):
        return False
    if job.group.sub_groups:
        return sub_job is None or sub_job.minimum < len(sub_job.tasks)
    if job.minimum >= len(job.tasks):
        return False
    failed = job.failed_roles(sub_job)
    if job.group.role_minimums and not job.role_minimums:
        # Any members count: enough are left if none of the roles that failed gets any more.
        left = sum(task.role not in failed for task in job.by_status[TaskStatus.PENDING].values())
        return job.ready + left >= job.minimum
    # Each role counts: one that failed gets no more.
    return all(
        job.in_role(role, READY, best_effort=True) >= least
        for role in failed
        if (least := job.role_minimums.get(role, 0))
    )


def _place_sub_jobs(statement: Statement, job: Job, sheet: Sheet) -> Generator[None, None, bool]:
    """As `_place` for a job with sub-groups: those come first that the job needs."""
    session = statement.session
    tiers = session.tiers
    job.reset_fit_errors()
    left = {name: tasks.copy() for name, tasks in sheet.items()}
    needed = _needed(session, job)
    waiting = [job.sub_jobs[name] for name in left]
    tried: list[Statement] = []
    while waiting:
        sub_job = min(waiting, key=lambda each: (each.uid not in needed, tiers.sub_job_key(each)))
        waiting.remove(sub_job)
        job.reset_fit_errors(sub_job)
        attempt, tasks = Statement(session), left[sub_job.uid].copy()
        placed = session.nodes.count > 0 and (yield from _place(attempt, job, sub_job, tasks))
        if not placed or not attempt.operations:
            continue
        tried.append(attempt)
        left[sub_job.uid] = tasks
        if tasks:
            waiting.append(sub_job)
        if tiers.job_ready(job):
            break
    if tried and (tiers.job_ready(job) or tiers.job_pipelined(job)):
        for attempt in tried:
            statement.merge(attempt)
        # A sub-group that could not be placed is not tried again in this session.
        sheet.clear()
        sheet.update({sub_job.uid: left[sub_job.uid] for sub_job in waiting})
        return True
    for attempt in reversed(tried):
        attempt.discard()
    return False


def _needed(session: Session, job: Job) -> set[str]:
    """The sub-groups with which, beside those that are ready, each policy has its minimum."""
    tiers = session.tiers
    ready: dict[str, int] = {}
    others = []
    for sub_job in job.sub_jobs.values():
        if tiers.sub_job_ready(job, sub_job):
            ready[sub_job.policy] = ready.get(sub_job.policy, 0) + 1
        else:
            others.append(sub_job)
    needed = set()
    for sub_job in sorted(others, key=tiers.sub_job_key):
        if ready.get(sub_job.policy, 0) < job.sub_minimums.get(sub_job.policy, 0):
            needed.add(sub_job.uid)
            ready[sub_job.policy] = ready.get(sub_job.policy, 0) + 1
    return needed
