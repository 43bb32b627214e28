"""Nodes for the pending tasks of jobs that are Inqueue or run (`pkg/scheduler/actions/allocate`)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from functools import cmp_to_key, partial
from typing import TYPE_CHECKING

from agent_scheduler.objects.batch import INQUEUE

from ..fit import FitErrors
from ..lending import has_nominated, lent, may_hold, wanted_next
from ..model import READY, Job, SubJob, Task, TaskStatus
from ..settled import STRIDE
from ..sparing import Keeping, Spared
from ..statement import Statement
from ..together import place_together
from ..worklist import Worklist

if TYPE_CHECKING:
    from ..session import Session

Tasks = deque[Task]
#: Sub-group -> its tasks; of a job without sub-groups there is one, with no name.
Sheet = dict[str, Tasks]


def allocate(session: Session) -> Iterator[None]:
    """A job gets nodes until its gang is complete. What is above that comes when the other jobs had their turn. What is
    left then is lent."""
    tiers = session.tiers
    sheets: dict[str, Sheet] = {}
    waiting: list[Job] = []
    for job in session.fresh:
        if session.conf.work_conserving:
            _give_up_claims(session, job)
        if job.is_pending:
            if "enqueue" in session.conf.actions:
                continue
            job.phase = INQUEUE
        if tiers.invalid(job) is None and (sheet := _sheet(session, job)):
            sheets[job.uid] = sheet
            waiting.append(job)
        yield
    short: set[str] = set()
    if first := _nominated(session, waiting):
        with lent(session):
            yield from _in_turn(session, first, sheets, short)
        waiting = [job for job in waiting if any(sheets[job.uid].values())]
    yield from _in_turn(session, waiting, sheets, short)
    yield from _lend(session, short)


def _nominated(session: Session, jobs: Sequence[Job]) -> Sequence[Job]:
    """Those for which others were evicted, and those of their queues with a higher priority: else who was evicted might
    take the room again, and be evicted again, in turns."""
    nominated = [job for job in (jobs if session.conf.work_conserving else ()) if has_nominated(job)]
    least = {job.queue: job.priority for job in sorted(nominated, key=lambda each: -each.priority)}
    first = {job.uid for job in nominated}
    return [job for job in jobs if job.uid in first or job.priority > least.get(job.queue, job.priority)]


def _in_turn(
    session: Session, jobs: Sequence[Job], sheets: Mapping[str, Sheet], short: set[str]
) -> Iterator[None]:
    """Adds to `short` jobs that nodes alone refused."""
    tiers = session.tiers
    work = Worklist(tiers, session.queues)
    for job in jobs:
        work.add(job)
    for name in sorted(session.settled_queues):
        # They are asked whether they are overused, which their gauges say.
        work.know(name)
    while work.queues:
        queue = work.queues.pop()
        if tiers.overused(queue):
            continue
        waiting = work.know(queue.name)
        if not waiting:
            continue
        job = waiting.pop()
        sheet = sheets[job.uid]
        if (yield from _try(session, job, sheet)):
            if any(sheet.values()):
                waiting.push(job)
        elif job.uid not in session.held_back:
            short.add(job.uid)
        work.queues.push(queue)
        yield


def _try(session: Session, job: Job, sheet: Sheet) -> Generator[None, None, bool]:
    """Nodes for what a job wants next. Whether it is complete, and what it got was sent."""
    statement = Statement(session)
    placed = False
    if job.group.sub_groups:
        placed = yield from _place_sub_jobs(statement, job, sheet)
    elif session.nodes.count:
        placed = yield from _place(statement, job, None, sheet[""])
    if placed and session.tiers.job_ready(job):
        statement.commit()
        return True
    if placed:
        # A gang that waits for room which is about to be free keeps its claims, and nothing is sent.
        session.nodes.let_go(job.by_status[TaskStatus.ALLOCATED].values())
    return False


def _give_up_claims(session: Session, job: Job) -> None:
    """Have tasks placed that an action before this one gave claims, though nobody is evicted for them: on room that is
    free nobody would ever bind them. A gang that waits for others to leave keeps all of its claims."""
    claims = list(job.pipelined_tasks())
    free = [task for task in claims if not task.evicting]
    if len(free) == len(claims) or session.tiers.job_ready(job):
        for task in free:
            session.unplace(task)


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
        if not (nodes.has_room(task, row) and tiers.allocatable_now(queue, task)):
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


# ---- what is left


def _lend(session: Session, short: Collection[str]) -> Iterator[None]:
    """Room on nodes that no job within its queue's share waits for, to jobs beyond it: in the order of queues, of two
    that are alike to the oldest job. What queues may hold at most holds for them, too. `short`: jobs that nodes alone
    refused."""
    tiers, nodes = session.tiers, session.nodes
    if not (session.conf.work_conserving and tiers.every("lending") and nodes.count):
        return
    beyond: dict[str, list[Job]] = {}
    wanted: dict[str, Sequence[Task]] = {}
    for number, job in enumerate(session.fresh):
        if not (number + 1) % STRIDE:
            yield
        tasks = () if job.is_pending or job.uid in short else _waits_for_room(session, job)
        if tasks and not may_hold(session, job, tasks):
            beyond.setdefault(job.queue, []).append(job)
            wanted[job.uid] = tasks
    if not beyond:
        return
    kept = yield from _kept_room(session, wanted)
    for jobs in beyond.values():
        jobs.sort(key=tiers.job_key, reverse=True)
    # A task whose bind is refused is pending again, and not tried again in this session.
    sheets: dict[str, Sheet] = {}
    with lent(session):
        while beyond:
            first = min(beyond, key=cmp_to_key(partial(_compare, session, beyond)))
            jobs = beyond[first]
            nodes.keep(kept[_gives_back(session, jobs[-1])])
            tasks = wanted.pop(jobs[-1].uid, ()) or wanted_next(session, jobs[-1])
            if not (may_hold(session, jobs[-1], tasks) and (yield from _lend_to(session, jobs[-1], sheets))):
                jobs.pop()
            if not jobs:
                del beyond[first]
            yield
    nodes.keep(())


def _lend_to(session: Session, job: Job, sheets: dict[str, Sheet]) -> Generator[None, None, bool]:
    """Whether to come back to the job: it got what it wanted next, and wants more."""
    if job.uid not in sheets:
        sheets[job.uid] = _sheet(session, job)
    sheet = sheets[job.uid]
    told = job.take_fit_errors()
    is_complete = yield from _try(session, job, sheet)
    job.take_fit_errors({**told, **job.fit_errors})
    if not is_complete and session.nodes.keeps:
        session.held_back.add(job.uid)
    return is_complete and any(sheet.values())


def _waits_for_room(session: Session, job: Job) -> Sequence[Task]:
    """What a job would use room for if it had its turn; empty for one that waits for something else, or has claims
    already."""
    tiers = session.tiers
    if job.quota_refusal or tiers.invalid(job) is not None or (job.waiting and tiers.job_pipelined(job)):
        return ()
    tasks = wanted_next(session, job)
    has = job.ready + job.best_effort + job.waiting + len(tasks)
    return tasks if has >= job.minimum else ()


def _stays_outside(session: Session, job: Job) -> bool:
    """Whether the job is not let into its queue: no node is of use to it, until one session after that."""
    actions, promises = session.conf.actions, session.promises
    if not job.is_pending or "enqueue" not in actions:
        return False
    is_asked = actions.index("enqueue") < actions.index("allocate")
    return is_asked or (promises is not None and promises.has_answered(job.group.key))


def _gives_back(session: Session, job: Job) -> bool:
    """Whether `reclaim` may take what is lent to the job."""
    return (
        "reclaim" in session.conf.actions
        and session.queues[job.queue].reclaimable
        and all(task.preemptable for task in job.by_status[TaskStatus.PENDING].values())
    )


def _takes_back(session: Session, job: Job, tasks: Sequence[Task]) -> bool:
    """Whether `reclaim` looks for room for the job."""
    return not job.is_pending and session.tiers.starving(job) and all(task.pod.preempts for task in tasks)


def _kept_room(
    session: Session, beyond: Collection[str]
) -> Generator[None, None, tuple[Sequence[Spared], Sequence[Spared]]]:
    """Room on nodes that may be of use to others than jobs `beyond` their queue's share; and of it what is kept even
    from such jobs as give back what they are lent."""
    nodes = session.nodes
    kept, firmly = Keeping(), Keeping()
    seen = set()
    for number, job in enumerate(session.jobs.values()):
        if not (number + 1) % STRIDE:
            yield
        tasks = () if job.uid in beyond or _stays_outside(session, job) else _waits_for_room(session, job)
        if not tasks or not may_hold(session, job, tasks):
            continue
        waits = _takes_back(session, job, tasks)
        kinds = {(task.pod.cls, task.pod.claims): task for task in tasks}
        alike = (waits, frozenset(Counter((task.pod.cls, task.pod.claims) for task in tasks).items()))
        if alike in seen:
            continue
        seen.add(alike)
        rows = {row for task in kinds.values() for row in nodes.of_use(task)}
        kept.add(rows, tasks)
        if not waits:
            firmly.add(rows, tasks)
    return kept.parts(), firmly.parts()


def _compare(session: Session, waiting: Mapping[str, Sequence[Job]], left: str, right: str) -> int:
    """Of two queues by the job of each that comes next, the last in its list."""
    one, other = waiting[left][-1], waiting[right][-1]
    found = session.tiers.compare_queues(session.queues[left], session.queues[right])
    return found or (-1 if (one.created, one.uid) < (other.created, other.uid) else 1)
