"""Whom a node has to lose so that a task fits there: what preempt and reclaim have in common.

Victims are chosen by Volcano's votes and in its order (`BuildVictimsPriorityQueue`). Beyond Volcano a gang loses what
it has above its minimums, or all of its pods: members without which the others are no gang go last, and together with
these (volcano-sh/volcano#4535, #5805).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cmp_to_key
from typing import TYPE_CHECKING, Final

from .lending import has_nominated, lent
from .model import READY, Job, Task, TaskStatus
from .statement import Statement

if TYPE_CHECKING:
    from .session import Session

#: Statuses of tasks that may be evicted (`PreemptableStatus`).
EVICTABLE: Final = (TaskStatus.BOUND, TaskStatus.RUNNING)

_ON_THEIR_WAY: Final = (TaskStatus.BINDING, TaskStatus.ALLOCATED)

#: Which of the tasks on a node are asked about.
Which = Callable[[Task], bool]
#: Whom of some tasks the plugins let go for the first.
Vote = Callable[[Task, Sequence[Task]], list[Task]]


def make_room(statement: Statement, task: Task, row: int, *, which: Which, vote: Vote, reason: str) -> bool:
    """Have pods of a node evicted until `task` fits and its queue allows it, and give it a claim on the room.

    All in `statement`; where it is not enough, nothing is done.
    """
    session = statement.session
    nodes, tiers = session.nodes, session.tiers
    queue = session.queues[task.job.queue]
    # Plugins that count, as gang does, let the first ones go.
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


def _may_claim(session: Session, task: Task) -> bool:
    """Others that its queue has been lent room for meanwhile do not keep a task from the room that it had evicted."""
    queue, allocatable = session.queues[task.job.queue], session.tiers.allocatable
    if allocatable(queue, task) or not has_nominated(task.job):
        return allocatable(queue, task)
    with lent(session):
        return allocatable(queue, task)


def takes_free_room(statement: Statement, task: Task) -> bool:
    """Give the task a claim where there is room for it, or is about to be, that its queue may hold: for it nobody needs
    to be evicted. Volcano looks at the best node, and has pods evicted there."""
    session = statement.session
    if not (session.conf.work_conserving and _may_claim(session, task)):
        return False
    row = session.nodes.best(task, session.nodes.view(task))
    if row is not None:
        statement.pipeline(task, row)
    return row is not None


def rows_for(session: Session, task: Task) -> list[int]:
    """Nodes on which evictions may help, the best by the plugins' scores first.

    Those that a plugin refuses for what no eviction changes are left out; room is not looked at.
    """
    nodes = session.nodes
    return nodes.in_score_order(nodes.view(task))


def _bundles(
    session: Session, task: Task, victims: Sequence[Task], *, which: Which, vote: Vote
) -> Iterable[Sequence[Task]]:
    """Who is evicted together, in order."""
    spare = _Spare()
    breaking: dict[str, Job] = {}
    for victim in in_victim_order(session, task, victims):
        if spare.take(victim):
            yield (victim,)
        else:
            breaking.setdefault(victim.job.uid, victim.job)
    for job in breaking.values():
        # Those that are about to be evicted anyway are no longer among them.
        rest = [each for status in EVICTABLE for each in job.by_status[status].values()]
        whole = not any(job.by_status[status] for status in _ON_THEIR_WAY)
        if whole and all(map(which, rest)) and len(vote(task, rest)) == len(rest):
            yield in_victim_order(session, task, rest)


class _Spare:
    """How many pods of each job, and of each role of it, can go before it is no gang any more."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}
        self._roles: dict[tuple[str, str], int] = {}

    def take(self, task: Task) -> bool:
        """Whether the job is as good without the task, which then goes."""
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


def in_victim_order(session: Session, preemptor: Task, victims: Sequence[Task]) -> list[Task]:
    """Of one job the last in its order first; of two jobs of a queue that of the later job; of two queues as these."""
    tiers, queues = session.tiers, session.queues
    preemptor_queue = queues[preemptor.job.queue]
    by_job: dict[str, list[Task]] = {}
    for task in victims:
        by_job.setdefault(task.job.uid, []).append(task)
    keys = {uid: tiers.job_key(tasks[0].job) for uid, tasks in by_job.items()}

    def compare(left: list[Task], right: list[Task]) -> int:
        one, other = left[0].job, right[0].job
        if one.queue != other.queue:
            first = tiers.victim_queue_first(queues[one.queue], queues[other.queue], preemptor_queue)
        else:
            first = keys[one.uid] > keys[other.uid]
        return -1 if first else 1

    jobs = sorted(by_job.values(), key=cmp_to_key(compare))
    return [task for tasks in jobs for task in reversed(tiers.in_task_order(tasks))]
