"""What a session leaves behind: phases and conditions of groups, conditions of pods, events, what queues hold
(`job_updater.go`, `updateQueueStatus` and the cache's `RecordJobStatusEvent`)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from math import inf
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from agent_scheduler.objects.batch import (
    COMPLETED,
    INQUEUE,
    PENDING,
    ROOT_QUEUE,
    RUNNING,
    SCHEDULED,
    UNKNOWN,
    PodGroupCondition,
    PodGroupStatus,
)

from ..gangs.group import Group
from ..quotas.accounts import zero
from ..quotas.book import QuotaBook
from ..quotas.entries import Standing
from ..quotas.queues import QueueInfo
from ..quotas.shortfall import Shortfall
from ..quotas.vector import Total, Vector, add_to, plus
from ..state.batchinfo import GroupKey
from ..state.podinfo import PodInfo
from ..verdicts import SCHEDULING_GATED, UNSCHEDULABLE, Verdict, Wait, by_queue, of_own_gates
from .messages import (
    GANG_READY,
    GROUP_READY,
    fit_error,
    gang_unschedulable,
    scheduling_reason,
)
from .model import HOLDING, Job, TaskStatus
from .session import Event, Session
from .settled import STRIDE, Settled, at_rest, settles
from .written import NOBODY, Told, holds, of_group, of_task

_SCHEDULED: Final = (TaskStatus.BOUND, TaskStatus.RUNNING, TaskStatus.SUCCEEDED, TaskStatus.FAILED)
_COMPLETED: Final = (TaskStatus.SUCCEEDED, TaskStatus.FAILED)
_INCOMPLETE: Final = (UNKNOWN, PENDING, INQUEUE)
#: What keeps a group out of its queue that has no pods yet, and is told.
_KEEPING_OUT: Final = (Wait.QUOTA, Wait.QUEUE)
#: Statuses of the tasks that are told why they wait.
_WAITING: Final = (TaskStatus.ALLOCATED, TaskStatus.PENDING, TaskStatus.PIPELINED)


class GroupResult(Struct, frozen=True, kw_only=True):
    group: Group
    status: PodGroupStatus
    #: Whether it differs from what the object has.
    write: bool
    #: Status -> tasks.
    tasks: Mapping[str, int]
    #: None for a group that has its minimum.
    verdict: Verdict | None
    #: Whether others were chosen to leave for it, and have not left.
    preempts: bool = False

    @property
    def waits_for(self) -> str:
        """One of `verdicts.LABELS`, or empty."""
        return "" if self.verdict is None else self.verdict.label


class PodResult(Struct, frozen=True, kw_only=True):
    """A PodScheduled condition, status False, that the pod does not have yet; `nominated` is empty for no node."""

    pod: PodInfo
    reason: str
    message: str
    nominated: str = ""


class QueueResult(Struct, frozen=True, kw_only=True):
    """What the pods of a queue and of those below it hold: with the book of queues all that have a node, else those of
    the session's jobs that Volcano counts."""

    queue: QueueInfo
    allocated: Total
    #: Whether its status says otherwise.
    write: bool


class Result(Struct, frozen=True, kw_only=True):
    groups: Sequence[GroupResult]
    pods: Sequence[PodResult]
    queues: Sequence[QueueResult]
    #: Groups that pods name and that are not there.
    lost: Mapping[GroupKey, Verdict]
    #: In the order in which they came.
    events: Sequence[Event]
    #: Pods that are to lose the gate of their queue's capacity.
    ungated: Sequence[PodInfo]
    #: Job -> dominant share, where drf is configured.
    shares: Mapping[str, float]
    #: Queue -> name -> value.
    gauges: Mapping[str, Mapping[str, float]]
    #: UID -> what keeps a pod back that no node would help; empty where the book was not asked.
    held: Mapping[str, Verdict]
    #: By queue, what pods that are not held want there and in queues below it, for which no room is kept.
    wanted: Mapping[str, Vector]
    #: Jobs that later sessions need not look at while nothing about them changes; none where no book was asked.
    settled: Mapping[GroupKey, Settled]
    #: When a session would come to something else though nothing else had changed, in seconds of the epoch.
    turns_at: float


def close(
    session: Session, book: QuotaBook | None = None, given_back: Mapping[str, str] = NOBODY
) -> Generator[None, None, Result]:
    """To be run when `Session.run` has come to its end, one step at a time, too.

    With the book of queues all is said by what is waited for (`written`), else as Volcano says it.
    """
    mapped = book is not None
    held, wanted = ({}, {}) if book is None else (yield from holds(session, book, given_back))
    told: Told = {event.group: event.message for event in session.events}
    closings = session.tiers.every("job_closed")
    may_settle = mapped and settles(session.conf)
    groups, pods, events = [], [], list(session.events)
    settled: dict[GroupKey, Settled] = {}
    for job, demand in zip(session.jobs.values(), session.demands, strict=True):
        key = job.group.key
        kept = session.view.settled.get(key)
        is_held = bool(held) and any(uid in held for uid in job.tasks)
        if kept is not None and not is_held:
            groups.append(kept.result)
            settled[key] = kept
            if kept.share is not None:
                session.shares[job.uid] = kept.share
            if not len(groups) % STRIDE:
                yield
            continue
        if kept is not None:
            # Its queue holds it back from now on: what it says was said of another session.
            for closed in closings:
                closed(job)
        job.phase = _phase(session, job, mapped=mapped)
        verdict = of_group(session, job, held, told)
        # Only of a job that waits anything is said for which this is needed.
        waits = job.phase in _INCOMPLETE or (mapped and verdict is not None) or job.in_statuses(_WAITING)
        message = fit_error(job) if waits else ""
        if mapped:
            _set_conditions(session, job, verdict, message)
        result = _group_result(job, verdict)
        groups.append(result)
        events += _events(job, result, message, mapped=mapped)
        said = _pod_results(job, message, held, result.verdict, mapped=mapped)
        pods += said
        if may_settle and not (said or result.write or is_held) and at_rest(session, job):
            share = session.shares.get(job.uid)
            settled[key] = Settled(job=job, demand=demand, result=result, share=share)
        yield
    if mapped:
        for group in session.without_queue:
            waiting = [pod for pod in session.view.pods.get(group.key, ()) if _waits(pod)]
            if waiting:
                result, said = _without_queue(session, group, waiting)
                groups.append(result)
                pods += said
            yield
    lost = {key: Verdict(Wait.GROUP, why) for key, (why, _) in session.view.lost.items()}
    for key, verdict in lost.items():
        pods += _of_missing(session.view.lost[key][1], verdict)
        yield
    gauges: dict[str, dict[str, float]] = {}
    for gauges_of in session.tiers.every("gauges"):
        for queue, values in gauges_of().items():
            gauges.setdefault(queue, {}).update(values)
    queues = yield from _queue_results(session, book)
    return Result(
        groups=groups,
        pods=pods,
        queues=queues,
        lost=lost,
        events=events,
        ungated=[task.pod for task in session.gates_removed.values()],
        shares=session.shares,
        gauges=gauges,
        held=held,
        wanted=wanted,
        settled=settled,
        turns_at=min((turns_at() for turns_at in session.tiers.every("turns_at")), default=inf),
    )


def _group_result(job: Job, verdict: Verdict | None) -> GroupResult:
    old = job.group.status
    status = PodGroupStatus(
        phase=job.phase,
        conditions=tuple(job.conditions) or None,
        running=len(job.by_status[TaskStatus.RUNNING]),
        succeeded=len(job.by_status[TaskStatus.SUCCEEDED]),
        failed=len(job.by_status[TaskStatus.FAILED]),
    )
    return GroupResult(
        group=job.group,
        status=status,
        write=differ(status, old),
        tasks=job.counts,
        verdict=verdict,
        preempts=any(task.evicting or task.pod.nominated_node_name for task in job.pipelined_tasks()),
    )


def _set_conditions(session: Session, job: Job, verdict: Verdict | None, message: str) -> None:
    """What is true, in words of the verdict, and of what was true before that it is so no more."""
    if verdict is not None and not job.tasks:
        _set_conditions_without_pods(session, job, verdict, message)
        return
    if verdict is not None and job.is_leaving and not job.is_ready:
        return
    if verdict is None:
        job.conditions = _with(job.conditions, UNSCHEDULABLE, "False", GANG_READY, session)
        is_said = any(each.type == SCHEDULED and each.status == "True" for each in job.conditions)
        if not is_said and job.phase != COMPLETED:
            job.set_condition(_condition(session, SCHEDULED, "True", GANG_READY))
        return
    job.conditions = _with(job.conditions, SCHEDULED, "False", verdict.group_reason, session)
    said = _said_of(job, verdict, message)
    job.set_condition(_condition(session, UNSCHEDULABLE, "True", verdict.group_reason, said))


def _set_conditions_without_pods(session: Session, job: Job, verdict: Verdict, message: str) -> None:
    """Pods of a Job are made when its group is let in, so what keeps that out is said of the group. It is told once,
    and not again as the numbers change, for there may be many of them. That pods are to come is nothing to be told."""
    job.conditions = _with(job.conditions, SCHEDULED, "False", verdict.group_reason, session)
    waits = [each for each in job.conditions if each.type == UNSCHEDULABLE and each.status == "True"]
    is_told = any(each.reason == verdict.group_reason for each in waits)
    if not is_told and (waits or (job.is_pending and verdict.wait in _KEEPING_OUT)):
        said = _said_of(job, verdict, message)
        job.set_condition(_condition(session, UNSCHEDULABLE, "True", verdict.group_reason, said))


def _said_of(job: Job, verdict: Verdict, message: str) -> str:
    """`message`: of `fit_error`."""
    if verdict.wait is Wait.GATES:
        gated = sum(task.gated for task in job.by_status[TaskStatus.PENDING].values())
        return f"{gated}/{len(job.tasks)} tasks in gang have scheduling gates: {message}"
    return gang_unschedulable(job, message) if verdict.wants_nodes else f"{verdict.message}; {message}"


def _condition(session: Session, kind: str, status: str, reason: str, message: str = "") -> PodGroupCondition:
    return PodGroupCondition(
        type=kind,
        status=status,
        transition_id=session.uid,
        last_transition_time=session.now or None,
        reason=reason,
        message=message,
    )


def _with(
    conditions: Sequence[PodGroupCondition], kind: str, status: str, reason: str, session: Session
) -> list[PodGroupCondition]:
    """A condition of this kind that is there is so from now on; where there is none nothing is said."""
    return [
        _condition(session, kind, status, reason)
        if each.type == kind and (each.status, each.reason) != (status, reason)
        else each
        for each in conditions
    ]


def _without_queue(
    session: Session, group: Group, waiting: Sequence[PodInfo]
) -> tuple[GroupResult, list[PodResult]]:
    """Of one that names a queue which there is not. No session looks at it."""
    verdict, old = by_queue(Shortfall(group.queue, {})), group.status
    conditions = _with(old.conditions or (), SCHEDULED, "False", verdict.group_reason, session)
    said = _condition(session, UNSCHEDULABLE, "True", verdict.group_reason, verdict.message)
    others = [each for each in conditions if each.type != UNSCHEDULABLE]
    status = replace(old, phase=old.phase or PENDING, conditions=(*others, said))
    result = GroupResult(
        group=group,
        status=status,
        write=differ(status, old),
        tasks={TaskStatus.PENDING.text: len(waiting)},
        verdict=verdict,
    )
    return result, _of_missing(waiting, verdict)


def _waits(pod: PodInfo) -> bool:
    return not (pod.node_name or pod.deleting or pod.finished)


def _of_missing(pods: Iterable[PodInfo], verdict: Verdict) -> list[PodResult]:
    own = ((pod, of_own_gates(stands_by=not pod.closed_gates) if pod.gates else verdict) for pod in pods)
    return [found for pod, each in own if (found := _pod_result(pod, each)) is not None]


def _pod_result(pod: PodInfo, verdict: Verdict, nominated: str = "") -> PodResult | None:
    """None where the pod says so already; of one with gates the API server has said so itself as it was created."""
    known, reason, message = pod.condition, verdict.reason, verdict.message
    if known is None:
        is_said = reason == SCHEDULING_GATED
    else:
        is_said = known[1] == reason and known[0] == "False"
        is_said = is_said and (known[2] == message or reason == SCHEDULING_GATED)
    if is_said and (not nominated or nominated == pod.nominated_node_name):
        return None
    return PodResult(pod=pod, reason=reason, message=message, nominated=nominated)


def _phase(session: Session, job: Job, *, mapped: bool) -> str:
    unschedulable = any(
        each.type == UNSCHEDULABLE and each.status == "True" and each.transition_id == session.uid
        for each in job.conditions
    )
    releasing = sum(bool(task.node_name) for task in job.by_status[TaskStatus.RELEASING].values())
    scheduled = job.in_statuses(_SCHEDULED) + releasing
    lacks = job.minimum == job.begun_minimum or scheduled < job.begun_minimum
    if job.by_status[TaskStatus.RUNNING] and unschedulable and lacks:
        return UNKNOWN
    if scheduled >= job.begun_minimum:
        ended = job.in_statuses(_COMPLETED)
        if scheduled != ended:
            return RUNNING
        if not mapped or (ended and len(job.tasks) == ended):
            return COMPLETED
        if ended:
            # It has its minimum by those that have ended, and others are to run yet.
            return RUNNING
    return INQUEUE if job.phase == INQUEUE else PENDING


def differ(new: PodGroupStatus, old: PodGroupStatus) -> bool:
    """Whether there is anything to write: not when a condition was found to hold, or in which session."""
    numbers = ("phase", "running", "succeeded", "failed")
    if any(getattr(new, name) != getattr(old, name) for name in numbers):
        return True
    return [*map(_said, new.conditions or ())] != [*map(_said, old.conditions or ())]


def _said(condition: PodGroupCondition) -> tuple[str, str, str, str]:
    return condition.type, condition.status, condition.reason, condition.message


def _events(job: Job, result: GroupResult, message: str, *, mapped: bool) -> list[Event]:
    if job.phase in _INCOMPLETE:
        pending = len(job.by_status[TaskStatus.PENDING])
        if mapped and not pending:
            # Its members are not there yet, or on their way. Volcano warns that `0/10 tasks` are unschedulable.
            return []
        verdict = result.verdict
        if mapped and verdict is not None and not verdict.wants_nodes:
            return [Event(job.group.key, "Warning", verdict.group_reason, _said_of(job, verdict, message))]
        text = f"{pending}/{len(job.tasks)} tasks in gang unschedulable: {message}"
        return [Event(job.group.key, "Warning", UNSCHEDULABLE, text)]
    if result.write:
        return [Event(job.group.key, "Normal", "Scheduled", GROUP_READY)]
    return []


def _pod_results(
    job: Job, job_message: str, held: Mapping[str, Verdict], group: Verdict | None, *, mapped: bool
) -> list[PodResult]:
    """Of a gated pod the API server has said so itself."""
    found = []
    for status in _WAITING:
        for task in job.by_status[status].values():
            pod = task.pod
            if task.gated and (not mapped or pod.condition is None or pod.condition[1] == SCHEDULING_GATED):
                continue
            reason, message, nominated = scheduling_reason(task)
            message = message or job_message
            if mapped:
                told = _pod_result(pod, of_task(task, group, held, message), nominated)
                if told is not None:
                    found.append(told)
                continue
            said = pod.condition[:3] if pod.condition is not None else None
            if said != ("False", reason, message) or (nominated and nominated != pod.nominated_node_name):
                found.append(PodResult(pod=pod, reason=reason, message=message, nominated=nominated))
    return found


def _queue_results(session: Session, book: QuotaBook | None) -> Generator[None, None, list[QueueResult]]:
    if book is not None:
        return queue_results(session.queues, placed_in(book), session.view.held)
    own: dict[str, Total] = {name: {} for name in session.queue_demands}
    for number, job in enumerate(session.jobs.values()):
        if not number % STRIDE:
            yield
        if job.allocated and job.in_statuses(HOLDING):
            add_to(own[job.queue], _rid_of_nothing(job.allocated))
    return queue_results(session.queues, own, session.view.held)


def placed_in(book: QuotaBook) -> dict[str, Total]:
    """By queue, what its own pods hold that have a node, whichever scheduler they are of."""
    return {
        name: plus(book.own(name, Standing.ASSUMED), book.own(name, Standing.BOUND)) for name in book.names()
    }


def queue_results(
    queues: Mapping[str, QueueInfo], own: Mapping[str, Vector], said: Mapping[str, Vector]
) -> list[QueueResult]:
    """`own`: by queue, what its own pods hold; `said`: what the statuses say that is held."""
    held = {name: zero() for name in queues}
    for queue, total in own.items():
        for name in _upwards(queues, queue):
            add_to(held[name], total)
    return [
        QueueResult(queue=queue, allocated=held[name], write=said.get(name) != held[name])
        for name, queue in queues.items()
    ]


def _upwards(queues: Mapping[str, QueueInfo], name: str) -> list[str]:
    """A queue and those that it lies in, as far as there are any."""
    found: list[str] = []
    while name in queues and name not in found:
        found.append(name)
        name = queues[name].parent or ROOT_QUEUE
    return found


def _rid_of_nothing(vector: Vector) -> Vector:
    """Without resources of which tasks held something earlier."""
    return {resource: amount for resource, amount in vector.items() if amount}
