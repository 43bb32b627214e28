"""Selects victims on a node so that a task fits there, for the actions preempt and reclaim.

Victims are selected by Volcano's votes, in its order (`BuildVictimsPriorityQueue`). Unlike in Volcano, a gang loses
either its surplus over its minimums or all of its pods: members of the minimum are evicted last, and only together
with all other members (volcano-sh/volcano#4535, #5805).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cmp_to_key
from typing import Final

from .lending import has_nominated, lent
from .model import READY, JobInfo, TaskInfo, TaskStatus
from .session import Session
from .statement import Statement

#: Statuses of tasks that may be evicted (`PreemptableStatus`).
EVICTABLE: Final = (TaskStatus.BOUND, TaskStatus.RUNNING)

_ON_THEIR_WAY: Final = (TaskStatus.BINDING, TaskStatus.ALLOCATED)

#: Returns whether a task on the node is a candidate.
Which = Callable[[TaskInfo], bool]
#: Returns the candidates that plugins allow to be evicted for the first argument.
Vote = Callable[[TaskInfo, Sequence[TaskInfo]], list[TaskInfo]]


def make_room(statement: Statement, task: TaskInfo, row: int, *, which: Which, vote: Vote, reason: str) -> bool:
    """Evict pods of a node until `task` fits and its queue allows it, and give the task a claim on the room.

    The steps are added to `statement`. Returns False and changes nothing if the evictions are not sufficient.
    """
    session = statement.session
    nodes, tiers = session.nodes, session.tiers
    queue = session.queues[task.job.queue]
    # The order matters to plugins that count, such as gang: they allow the first candidates.
    candidates = in_victim_order(session, task, [each for each in nodes.tasks_on(row) if which(each)])
    victims = vote(task, candidates)
    if not nodes.fits_without(task, row, victims):
        return False
    attempt = Statement(session)
    for together in _bundles(session, task, victims, which=which, vote=vote):
        if tiers.allocatable(queue, task) and nodes.fits_without(task, row):
            break
        for victim in together:
            attempt.evict(victim, reason)
    if not (tiers.allocatable(queue, task) and nodes.fits_without(task, row)):
        attempt.discard()
        return False
    evicting = bool(attempt.operations)
    session.preemptions += evicting
    attempt.pipeline(task, row, evicting=evicting)
    statement.merge(attempt)
    return True


def _may_claim(session: Session, task: TaskInfo) -> bool:
    """Return whether the task's queue may hold it.

    If pods were evicted for the job, tasks that were lent room in the queue meanwhile do not count against it.
    """
    queue, allocatable = session.queues[task.job.queue], session.tiers.allocatable
    if allocatable(queue, task) or not has_nominated(task.job):
        return allocatable(queue, task)
    with lent(session):
        return allocatable(queue, task)


def takes_free_room(statement: Statement, task: TaskInfo) -> bool:
    """Give the task a claim on room that is free or about to be free, if its queue may hold it.

    Returns whether it has one, so that no pod must be evicted. Volcano only tries the best node and evicts pods there.
    """
    session = statement.session
    if not (session.conf.work_conserving and _may_claim(session, task)):
        return False
    row = session.nodes.best(task, session.nodes.view(task))
    if row is not None:
        statement.pipeline(task, row)
    return row is not None


def rows_for(session: Session, task: TaskInfo) -> list[int]:
    """Return the rows on which evictions may help, in descending order of scores.

    Rows that a plugin rejects for reasons that no eviction changes are left out; capacity is not checked. The job
    records all plugins that reject rows.
    """
    nodes, of_job = session.nodes, task.job.eviction_refusals
    view = nodes.view(task)
    rows, plugins = nodes.if_pods_left(view)
    if plugins:
        of_job[task.uid] = of_job.get(task.uid, plugins) | plugins
    return nodes.in_score_order(view, rows)


def _bundles(
    session: Session, task: TaskInfo, victims: Sequence[TaskInfo], *, which: Which, vote: Vote
) -> Iterable[Sequence[TaskInfo]]:
    """Yield the sets of victims that are evicted together, in order."""
    spare = _Spare()
    breaking: dict[str, JobInfo] = {}
    for victim in in_victim_order(session, task, victims):
        if spare.take(victim):
            yield (victim,)
        else:
            breaking.setdefault(victim.job.uid, victim.job)
    for job in breaking.values():
        # Tasks that are already evicted in the statement have another status, and are not included.
        rest = [each for status in EVICTABLE for each in job.by_status[status].values()]
        whole = not any(job.by_status[status] for status in _ON_THEIR_WAY)
        if whole and all(map(which, rest)) and len(vote(task, rest)) == len(rest):
            yield in_victim_order(session, task, rest)


class _Spare:
    """Counts how many pods each job, and each of its roles, can lose before it is below its minimum."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}
        self._roles: dict[tuple[str, str], int] = {}

    def take(self, task: TaskInfo) -> bool:
        """Return whether the job keeps its minimums without the task; if so, count it as lost."""
        job = task.job
        left = self._left.setdefault(job.uid, job.ready - job.minimum)
        least = job.role_minimums.get(task.role)
        of_role = left
        if least is not None:
            key = (job.uid, task.role)
            of_role = self._roles.setdefault(key, job.in_role(task.role, READY) - least)
        if min(left, of_role) <= 0:
            return False
        self._left[job.uid] = left - 1
        if least is not None:
            self._roles[job.uid, task.role] = of_role - 1
        return True


def in_victim_order(session: Session, preemptor: TaskInfo, victims: Sequence[TaskInfo]) -> list[TaskInfo]:
    """Return the victims in the order of eviction.

    Queues are in the order of victim queues, the jobs of a queue and the tasks of a job in reverse order.
    """
    tiers, queues = session.tiers, session.queues
    preemptor_queue = queues[preemptor.job.queue]
    by_job: dict[str, list[TaskInfo]] = {}
    for task in victims:
        by_job.setdefault(task.job.uid, []).append(task)
    keys = {uid: tiers.job_key(tasks[0].job) for uid, tasks in by_job.items()}

    def compare(left: list[TaskInfo], right: list[TaskInfo]) -> int:
        one, other = left[0].job, right[0].job
        if one.queue != other.queue:
            first = tiers.victim_queue_first(queues[one.queue], queues[other.queue], preemptor_queue)
        else:
            first = keys[one.uid] > keys[other.uid]
        return -1 if first else 1

    jobs = sorted(by_job.values(), key=cmp_to_key(compare))
    return [task for tasks in jobs for task in reversed(tiers.in_task_order(tasks))]
