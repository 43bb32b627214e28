"""enqueue: admits groups to their queues; the phase Pending becomes Inqueue (`pkg/scheduler/actions/enqueue`).

Volcano processes queues and jobs in their order and asks plugins. With one account of queues for all schedulers and
gates, groups are admitted by this account, in its order, and plugins decide about other reasons against admission.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Final

from agent_scheduler.objects.batch import GROUP_OF_PODS, INQUEUE, PENDING

from ...queues.asks import Ask, needed, turn_in_gang, turn_of_group
from ...queues.promises import Promises
from ...quotas.accounts import QuotaRefusal
from ...quotas.vector import EMPTY, Total, Vector, add_to, at_least, in_order
from ..demand import admitted_minimum
from ..model import READY, WITHOUT_ROOM, JobInfo, TaskInfo
from ..session import Session
from ..settled import STRIDE
from ..worklist import Worklist

_EVICTING: Final = frozenset(("preempt", "reclaim"))


def enqueue(session: Session) -> Iterator[None]:
    """Admit groups, by the account of queues if there is one; plugins are not asked about groups without resources."""
    if session.promises is None:
        yield from _as_plugins_say(session)
    else:
        yield from _by_account(session, session.promises)


def _as_plugins_say(session: Session) -> Iterator[None]:
    work = Worklist(session)
    for job in session.fresh:
        jobs = work.know(job.queue)
        if job.is_pending:
            jobs.push(job)
        yield
    while work.queues:
        queue = work.queues.pop()
        jobs = work.know(queue.name)
        if not jobs:
            continue
        job = jobs.pop()
        if _is_let_in(session, job):
            _let_in(session, job)
        work.queues.push(queue)
        yield


def _is_let_in(session: Session, job: JobInfo) -> bool:
    return job.min_resources is None or session.tiers.enqueueable(job)


def _let_in(session: Session, job: JobInfo) -> None:
    session.tiers.enqueued(job)
    job.phase = INQUEUE


def _by_account(session: Session, promises: Promises) -> Iterator[None]:
    """Admit groups by the account of queues.

    Groups that another process has admitted without room ask again, and so do groups that need more than before.
    """
    asking: list[JobInfo] = []
    asks: list[Ask] = []
    for number, job in enumerate(session.fresh):
        if not number % STRIDE:
            yield
        if not job.group.is_object or not (job.is_pending or job.is_inqueue):
            continue
        if not job.tasks and job.name.startswith(GROUP_OF_PODS):
            # The group was created for a pod that does not name it so far, or that is deleted.
            promises.end(job.group.key)
            job.phase = PENDING
            continue
        if promises.is_let_in(job.group.key) or _is_let_in(session, job):
            asks.append(_ask(session, job))
        else:
            promises.withdraw(job.group.key)
        asking.append(job)
        yield
    may_go = _may_go(session)
    promises.begin(asks)
    for ask in sorted(asks, key=attrgetter("turn")):
        promises.ask(ask, may_go.get(ask.queue, EMPTY))
        yield
    for job in asking:
        key, was_inqueue = job.group.key, job.is_inqueue
        if not promises.is_let_in(key):
            job.phase = PENDING
            short = promises.shortfall(key)
            if short is not None:
                session.record_refusal(job, QuotaRefusal(short.queue, in_order(short.missing)))
        elif was_inqueue:
            continue
        elif _is_let_in(session, job):
            _let_in(session, job)
        else:
            promises.withdraw(key)
        yield


def _ask(session: Session, job: JobInfo) -> Ask:
    members = [task.pod for task in job.tasks.values()]
    own = turn_of_group(members, job.priority, job.created, job.name, job.group.uid, job.group.status.conditions)
    complete = session.tiers.invalid(job) is None and _may_have_minimum(job)
    return Ask(job.group.key, job.queue, _wanted(job, complete=complete), members, own, complete)


def _may_have_minimum(job: JobInfo) -> bool:
    """Return whether enough members for the minimum have room, or have no gate that other components remove."""
    free = [task for task in _waiting(job) if task.gets_free]
    roles = Counter(task.role for task in free)
    return job.in_statuses(READY) + len(free) >= job.minimum and all(
        job.in_role(role, READY) + roles[role] >= least for role, least in job.role_minimums.items()
    )


def _waiting(job: JobInfo) -> list[TaskInfo]:
    """Return the tasks without room on a node at present; a pipelined one has room once others have left its node."""
    return [task for status in WITHOUT_ROOM for task in job.by_status[status].values()]


def _wanted(job: JobInfo, *, complete: bool) -> Vector:
    """Return what the group needs to run.

    It is the group's `minResources` without gated tasks, and at least the requests of the existing members of the
    minimum. A group without `minResources` needs nothing for admission, unless it is `complete` and has members with
    the gate of its queue: the gates are removed only with room for the whole minimum, so the other members must find
    room too.
    """
    said = admitted_minimum(job)
    if said is None and not (complete and any(task.gate_managed for task in job.tasks.values())):
        return EMPTY
    waiting = [task for task in _waiting(job) if not task.has_other_gate]
    if len({id(task.request) for task in waiting}) > 1:
        # The requests of the first tasks must not depend on the order in which the pods were observed.
        waiting.sort(key=lambda task: turn_in_gang(task.pod))
    first, _ = needed(
        waiting,
        role_of=attrgetter("role"),
        more=job.minimum - job.in_statuses(READY),
        of_roles={role: least - job.in_role(role, READY) for role, least in job.role_minimums.items()},
    )
    of_members: Total = dict(job.allocated)
    for task in first:
        add_to(of_members, task.request)
    return at_least(said or EMPTY, of_members)


def _may_go(session: Session) -> Mapping[str, Vector]:
    """Return for each queue what its jobs hold beyond their minimums, if an action may evict it; otherwise nothing."""
    if _EVICTING.isdisjoint(session.conf.actions):
        return {}
    return {name: demand.elastic() for name, demand in session.queue_demands.items()}
