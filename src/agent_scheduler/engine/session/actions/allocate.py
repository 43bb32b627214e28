"""allocate: places the pending tasks of jobs that are Inqueue or run (`pkg/scheduler/actions/allocate`)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from functools import cmp_to_key, partial
from heapq import heapify, heappop, heappush

from agent_scheduler.objects.batch import INQUEUE

from ...decide.gang_placing import may_help
from ..fit import FitErrors
from ..lending import has_nominated, lent, may_hold, wanted_next
from ..model import READY, JobInfo, SubJobInfo, TaskInfo, TaskStatus
from ..session import Session
from ..settled import STRIDE
from ..sparing import SparedNeeds, SparedRows
from ..statement import Statement
from ..worklist import Worklist


def place_together(
    statement: Statement, job: JobInfo, sub_job: SubJobInfo | None, placed: Sequence[TaskInfo], left: Sequence[TaskInfo]
) -> Generator[None, None, Sequence[TaskInfo]]:
    """Search nodes for a gang's members together, in steps. Returns the placed members; empty if there is no solution.

    With these members, which are in `statement` then, the job or its sub-group is ready. `placed` are the members that
    the discarded statement had placed before, `left` the others that may be placed.
    """
    session = statement.session
    errors = job.fit_errors
    refused = [(task.pod, errors[task.uid].plugins) for task in left if task.uid in errors]
    if not may_help([task.pod for task in placed], refused):
        return ()
    counts = job if sub_job is None else sub_job
    needed = counts.minimum - counts.ready - counts.best_effort
    members = session.tiers.in_pending_order(job, [*placed, *left])
    if job.role_minimums:
        # The first `needed` members include the minimum of each role.
        members = members[:needed]
    if not 1 < needed <= len(members):
        return ()
    placing = session.nodes.placing([task.pod for task in members], needed)
    while not placing.run():
        yield
    by_uid = {task.uid: task for task in members}
    found = [(by_uid[pod.uid], placement) for pod, placement in placing.found]
    queue = session.queues[job.queue]
    for task, placement in found:
        if not session.tiers.allocatable(queue, task) or not session.nodes.as_found(
            task, placement, statement.allocate
        ):
            statement.discard()
            return ()
    if not found or not session.tiers.sub_job_ready(job, sub_job):
        statement.discard()
        return ()
    job.forget_errors(task for task, _ in found)
    return [task for task, _ in found]


Tasks = deque[TaskInfo]
#: Sub-group -> its tasks; a job without sub-groups has one entry with an empty name.
Sheet = dict[str, Tasks]


def allocate(session: Session) -> Iterator[None]:
    """Place tasks of each job until its gang is complete, then the tasks beyond the minimum in later turns.

    Capacity that is left then is lent.
    """
    tiers = session.tiers
    sheets: dict[str, Sheet] = {}
    waiting: list[JobInfo] = []
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


def _nominated(session: Session, jobs: Sequence[JobInfo]) -> Sequence[JobInfo]:
    """Return the jobs for which pods were evicted, and the jobs of their queues with a higher priority.

    They come first. Otherwise an evicted job might use the room again, and be evicted again, in turns.
    """
    nominated = [job for job in (jobs if session.conf.work_conserving else ()) if has_nominated(job)]
    least = {job.queue: job.priority for job in sorted(nominated, key=lambda each: -each.priority)}
    first = {job.uid for job in nominated}
    return [job for job in jobs if job.uid in first or job.priority > least.get(job.queue, job.priority)]


def _in_turn(session: Session, jobs: Sequence[JobInfo], sheets: Mapping[str, Sheet], short: set[str]) -> Iterator[None]:
    """Place the tasks of jobs by queues in turn; add jobs that only nodes rejected to `short`."""
    tiers = session.tiers
    work = Worklist(session)
    for job in jobs:
        work.add(job)
    for name in sorted(session.settled_queues):
        # The check whether these queues are overused sets their gauges.
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


def _try(session: Session, job: JobInfo, sheet: Sheet) -> Generator[None, None, bool]:
    """Place the tasks that a job needs next. Returns whether it is complete; then they are committed."""
    statement = Statement(session)
    placed = False
    if job.group.sub_groups:
        placed = yield from _place_sub_jobs(statement, job, sheet)
    elif session.nodes.count:
        placed = yield from _place(statement, job, None, sheet[""])
    if placed and session.tiers.job_ready(job):
        # A commit takes as long as several placements.
        yield
        statement.commit()
        return True
    if placed:
        # A gang that waits for room which is about to be free keeps its claims; nothing is committed.
        session.nodes.let_go(job.by_status[TaskStatus.ALLOCATED].values())
    return False


def _give_up_claims(session: Session, job: JobInfo) -> None:
    """Remove claims of an earlier action for which no pod is evicted, so that the tasks are placed.

    No action would bind tasks with claims on free room. A gang that waits for victims keeps all of its claims.
    """
    claims = list(job.pipelined_tasks())
    free = [task for task in claims if not task.evicting]
    if len(free) == len(claims) or session.tiers.job_ready(job):
        for task in free:
            session.unplace(task)


def _sheet(session: Session, job: JobInfo) -> Sheet:
    """Return the pending tasks to place, without best-effort tasks and tasks with other gates than the queue's."""
    sheet: dict[str, list[TaskInfo]] = {}
    for task in job.by_status[TaskStatus.PENDING].values():
        if not task.best_effort and not task.has_other_gate:
            sheet.setdefault(task.sub_job.uid if task.sub_job is not None else "", []).append(task)
    in_order = session.tiers.in_pending_order
    return {name: deque(in_order(job, tasks)) for name, tasks in sheet.items()}


def _place(statement: Statement, job: JobInfo, sub_job: SubJobInfo | None, tasks: Tasks) -> Generator[None, None, bool]:
    """Place tasks until the job, or its sub-group, is ready.

    Returns False if it is not ready even with its claims on room that is about to be free; then all steps are undone.
    """
    session = statement.session
    tiers, nodes, queue = session.tiers, session.nodes, session.queues[job.queue]
    refused: list[TaskInfo] = []
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


def _goes_on(job: JobInfo, sub_job: SubJobInfo | None) -> bool:
    """Return whether the job may still become ready although a task found no node (`NeedContinueAllocating`)."""
    if job.minimum == len(job.tasks):
        return False
    if job.group.sub_groups:
        return sub_job is None or sub_job.minimum < len(sub_job.tasks)
    if job.minimum >= len(job.tasks):
        return False
    failed = job.failed_roles(sub_job)
    if job.group.role_minimums and not job.role_minimums:
        # Members of all roles count, so count those that remain without the roles that failed.
        left = sum(task.role not in failed for task in job.by_status[TaskStatus.PENDING].values())
        return job.ready + left >= job.minimum
    # Each role counts, and a role that failed gets no further members.
    return all(
        job.in_role(role, READY, best_effort=True) >= least
        for role in failed
        if (least := job.role_minimums.get(role, 0))
    )


def _place_sub_jobs(statement: Statement, job: JobInfo, sheet: Sheet) -> Generator[None, None, bool]:
    """Place the tasks of a job with sub-groups, like `_place`; sub-groups that the job needs come first."""
    session = statement.session
    tiers = session.tiers
    job.reset_fit_errors()
    left = {name: tasks.copy() for name, tasks in sheet.items()}
    needed = _needed(session, job)
    #: A heap. The key of a sub-group changes only with its own tasks, and ends in its unique UID.
    waiting = [(name not in needed, tiers.sub_job_key(job.sub_jobs[name]), job.sub_jobs[name]) for name in left]
    heapify(waiting)
    tried: list[Statement] = []
    while waiting:
        is_spare, _, sub_job = heappop(waiting)
        job.reset_fit_errors(sub_job)
        attempt, tasks = Statement(session), left[sub_job.uid].copy()
        placed = session.nodes.count > 0 and (yield from _place(attempt, job, sub_job, tasks))
        yield
        if not placed or not attempt.operations:
            continue
        tried.append(attempt)
        left[sub_job.uid] = tasks
        if tasks:
            heappush(waiting, (is_spare, tiers.sub_job_key(sub_job), sub_job))
        if tiers.job_ready(job):
            break
    if tried and (tiers.job_ready(job) or tiers.job_pipelined(job)):
        for attempt in tried:
            statement.merge(attempt)
        # A sub-group that could not be placed is not tried again in this session.
        sheet.clear()
        sheet.update({sub_job.uid: left[sub_job.uid] for _, _, sub_job in waiting})
        return True
    for attempt in reversed(tried):
        attempt.discard()
    return False


def _needed(session: Session, job: JobInfo) -> set[str]:
    """Return the sub-groups that each policy needs for its minimum in addition to the ready ones."""
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
    """Lend room that no job within its queue's share waits for to jobs beyond their queue's share.

    Jobs are in the order of queues; among equal queues the oldest job is first. The limits of queues apply. `short` are
    jobs that only nodes rejected.
    """
    tiers, nodes = session.tiers, session.nodes
    if not (session.conf.work_conserving and tiers.every("lending") and nodes.count):
        return
    beyond: dict[str, list[JobInfo]] = {}
    wanted: dict[str, Sequence[TaskInfo]] = {}
    for job in session.fresh:
        tasks = () if job.is_pending or job.uid in short else _waits_for_room(session, job)
        if tasks and not may_hold(session, job, tasks):
            beyond.setdefault(job.queue, []).append(job)
            wanted[job.uid] = tasks
        yield
    if not beyond:
        return
    kept = yield from _kept_room(session, wanted)
    for jobs in beyond.values():
        jobs.sort(key=tiers.job_key, reverse=True)
    # A task that the binder refuses is pending again, and is not tried again in this session.
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


def _lend_to(session: Session, job: JobInfo, sheets: dict[str, Sheet]) -> Generator[None, None, bool]:
    """Place the tasks that a job needs next. Returns whether they are placed and the job needs more."""
    if job.uid not in sheets:
        sheets[job.uid] = _sheet(session, job)
    sheet = sheets[job.uid]
    errors = job.take_fit_errors()
    is_complete = yield from _try(session, job, sheet)
    job.take_fit_errors({**errors, **job.fit_errors})
    if not is_complete and session.nodes.keeps:
        session.held_back.add(job.uid)
    return is_complete and any(sheet.values())


def _waits_for_room(session: Session, job: JobInfo) -> Sequence[TaskInfo]:
    """Return the tasks that a job would place next; empty if it waits for something else or has claims."""
    tiers = session.tiers
    if job.quota_refusal or tiers.invalid(job) is not None or (job.waiting and tiers.job_pipelined(job)):
        return ()
    tasks = wanted_next(session, job)
    has = job.ready + job.best_effort + job.waiting + len(tasks)
    return tasks if has >= job.minimum else ()


def _stays_outside(session: Session, job: JobInfo) -> bool:
    """Return whether the job is not admitted, so that it cannot use a node before the session after its admission."""
    actions, promises = session.conf.actions, session.promises
    if not job.is_pending or "enqueue" not in actions:
        return False
    is_asked = actions.index("enqueue") < actions.index("allocate")
    return is_asked or (promises is not None and promises.has_answered(job.group.key))


def _gives_back(session: Session, job: JobInfo) -> bool:
    """Return whether `reclaim` may evict the job's tasks that are placed on lent room."""
    return (
        "reclaim" in session.conf.actions
        and session.queues[job.queue].reclaimable
        and all(task.preemptable for task in job.by_status[TaskStatus.PENDING].values())
    )


def _takes_back(session: Session, job: JobInfo, tasks: Sequence[TaskInfo]) -> bool:
    """Return whether `reclaim` searches for victims for the job."""
    return not job.is_pending and session.tiers.starving(job) and all(task.pod.preempts for task in tasks)


def _kept_room(
    session: Session, beyond: Collection[str]
) -> Generator[None, None, tuple[Sequence[SparedRows], Sequence[SparedRows]]]:
    """Return the room to keep for jobs within their queue's share, as two sets.

    The first applies to jobs whose tasks cannot be reclaimed, the second to jobs whose tasks can be. `beyond` are the
    jobs beyond their queue's share.
    """
    nodes = session.nodes
    kept, firmly = SparedNeeds(), SparedNeeds()
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


def _compare(session: Session, waiting: Mapping[str, Sequence[JobInfo]], left: str, right: str) -> int:
    """Compare two queues; if they are equal, compare their next jobs, each the last of its list, by creation."""
    one, other = waiting[left][-1], waiting[right][-1]
    found = session.tiers.compare_queues(session.queues[left], session.queues[right])
    return found or (-1 if (one.created, one.uid) < (other.created, other.uid) else 1)
