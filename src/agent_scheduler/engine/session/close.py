"""Computes the results of a session: statuses of groups and queues, conditions of pods, and events.

The rules are those of Volcano's `job_updater.go`, `updateQueueStatus` and the cache's `RecordJobStatusEvent`.
"""

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

from ..gangs.group import PodGroupInfo
from ..queues.book import QuotaBook
from ..queues.entries import Standing
from ..queues.shortfall import Shortfall
from ..quotas.accounts import zero
from ..quotas.queues import QueueInfo
from ..quotas.vector import Total, Vector, add_to, plus
from ..state.batchinfo import GroupKey
from ..state.podinfo import PodInfo
from ..verdicts import SCHEDULING_GATED, UNSCHEDULABLE, Verdict, WaitReason, by_queue, of_own_gates
from .messages import GANG_READY, GROUP_READY, fit_error, gang_unschedulable, scheduling_reason
from .model import HOLDING, JobInfo, TaskStatus
from .results import GroupResult, PodResult, QueueResult
from .session import GroupEvent, Session
from .settled import STRIDE, SettledJob, settles
from .written import NOBODY, GroupMessages, holds, of_group, of_task

_SCHEDULED: Final = (TaskStatus.BOUND, TaskStatus.RUNNING, TaskStatus.SUCCEEDED, TaskStatus.FAILED)
_COMPLETED: Final = (TaskStatus.SUCCEEDED, TaskStatus.FAILED)
_INCOMPLETE: Final = (UNKNOWN, PENDING, INQUEUE)
#: The reasons against admission that are reported for a group without pods.
_KEEPING_OUT: Final = (WaitReason.QUOTA, WaitReason.ACCESS, WaitReason.QUEUE)
#: Statuses of tasks that are not in progress.
_AT_REST: Final = (TaskStatus.PENDING, TaskStatus.BOUND, TaskStatus.RUNNING, TaskStatus.SUCCEEDED, TaskStatus.FAILED)
#: Statuses of the tasks that report why they wait.
_WAITING: Final = (TaskStatus.ALLOCATED, TaskStatus.PENDING, TaskStatus.PIPELINED)


class SessionResult(Struct, frozen=True, kw_only=True):
    groups: Sequence[GroupResult]
    pods: Sequence[PodResult]
    #: The waiting pods that have the condition that was decided. A write of an earlier process may still replace it.
    confirmed: Sequence[PodInfo]
    queues: Sequence[QueueResult]
    #: The missing or invalid groups that pods name.
    lost: Mapping[GroupKey, Verdict]
    #: The events in the order of their occurrence.
    events: Sequence[GroupEvent]
    #: The pods from which the gate of their queue is to be removed.
    ungated: Sequence[PodInfo]
    #: Job -> dominant share, if drf is configured.
    shares: Mapping[str, float]
    #: Queue -> name -> value.
    gauges: Mapping[str, Mapping[str, float]]
    #: UID -> why a pod waits that no node would help; empty without a book.
    held: Mapping[str, Verdict]
    #: Queue -> what the pods that are not held want in it and its children, without those for which room is kept.
    wanted: Mapping[str, Vector]
    #: The jobs that later sessions may reuse while nothing about them changes; empty without a book.
    settled: Mapping[GroupKey, SettledJob]
    #: The time at which a session would have another result without any event, in seconds of the epoch.
    turns_at: float


def close(
    session: Session, book: QuotaBook | None = None, given_back: Mapping[str, str] = NOBODY
) -> Generator[None, None, SessionResult]:
    """Compute the results after `Session.run` has ended, in steps.

    With the book of queues, phases, conditions and reasons follow from the verdicts of `written`, otherwise they
    are those of Volcano.
    """
    mapped = book is not None
    held, wanted = ({}, {}) if book is None else (yield from holds(session, book, given_back))
    messages: GroupMessages = {event.group: event.message for event in session.events}
    closings = session.tiers.every("job_closed")
    may_settle = mapped and settles(session.conf)
    groups, pods, events = [], _PodResults(), list(session.events)
    settled: dict[GroupKey, SettledJob] = {}
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
            # The queue of the settled job holds it back now, so its conditions must be updated for this session.
            for closed in closings:
                closed(job)
        job.phase = _phase(session, job, mapped=mapped)
        verdict = of_group(session, job, held, messages)
        # The message is needed only for waiting jobs.
        waits = job.phase in _INCOMPLETE or (mapped and verdict is not None) or job.in_statuses(_WAITING)
        message = fit_error(job) if waits else ""
        if mapped:
            _set_conditions(session, job, verdict, message)
        result = _group_result(job, verdict)
        groups.append(result)
        events += _events(job, result, message, mapped=mapped)
        writes = len(pods.found)
        _decide_pods(pods, job, message, held, result.verdict, mapped=mapped)
        is_written = len(pods.found) > writes or result.write
        if may_settle and not (is_written or is_held) and at_rest(session, job):
            share = session.shares.get(job.uid)
            settled[key] = SettledJob(job=job, demand=demand, result=result, share=share)
        yield
    if mapped:
        for group in session.without_queue:
            waiting = [pod for pod in session.view.pods.get(group.key, ()) if _waits(pod)]
            if waiting:
                groups.append(_without_queue(session, group, waiting, pods))
            yield
    lost = {key: Verdict(WaitReason.GROUP, why) for key, (why, _) in session.view.lost.items()}
    for key, verdict in lost.items():
        pods.add_all(session.view.lost[key][1], verdict)
        yield
    gauges: dict[str, dict[str, float]] = {}
    for gauges_of in session.tiers.every("gauges"):
        for queue, values in gauges_of().items():
            gauges.setdefault(queue, {}).update(values)
    queues = yield from _queue_results(session, book)
    return SessionResult(
        groups=groups,
        pods=pods.found,
        confirmed=pods.confirmed,
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


def at_rest(session: Session, job: JobInfo) -> bool:
    """Return whether the job may be settled after this session."""
    if job.is_pending or job.in_statuses(_AT_REST) != len(job.tasks):
        return False
    pending = job.by_status[TaskStatus.PENDING]
    if not pending:
        return True
    return (
        not session.claims
        and job.uid not in session.held_back
        and not job.best_effort
        and bool(job.fit_errors)
        and not any(task.only_queue_gate for task in pending.values())
    )


def _group_result(job: JobInfo, verdict: Verdict | None) -> GroupResult:
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


def _set_conditions(session: Session, job: JobInfo, verdict: Verdict | None, message: str) -> None:
    """Set the condition that applies by the verdict, and set the opposite condition to False if it exists."""
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


def _set_conditions_without_pods(session: Session, job: JobInfo, verdict: Verdict, message: str) -> None:
    """Set the conditions of a group without pods.

    The pods of a Job are created after its group is admitted, so the reason against admission is reported by the group.
    It is written once and not again when only its numbers change, since there may be many such groups. That pods do not
    exist so far is not reported.
    """
    job.conditions = _with(job.conditions, SCHEDULED, "False", verdict.group_reason, session)
    waits = [each for each in job.conditions if each.type == UNSCHEDULABLE and each.status == "True"]
    is_told = any(each.reason == verdict.group_reason for each in waits)
    if not is_told and (waits or (job.is_pending and verdict.wait in _KEEPING_OUT)):
        said = _said_of(job, verdict, message)
        job.set_condition(_condition(session, UNSCHEDULABLE, "True", verdict.group_reason, said))


def _said_of(job: JobInfo, verdict: Verdict, message: str) -> str:
    """Return the message of a waiting gang's condition; `message` is that of `fit_error`."""
    if verdict.wait is WaitReason.GATES:
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
    """Return the conditions with this status and reason for an existing condition of this kind; none is added."""
    return [
        _condition(session, kind, status, reason)
        if each.type == kind and (each.status, each.reason) != (status, reason)
        else each
        for each in conditions
    ]


def _without_queue(session: Session, group: PodGroupInfo, waiting: Sequence[PodInfo], pods: _PodResults) -> GroupResult:
    """Return the result of a group whose queue does not exist; sessions do not evaluate it."""
    verdict, old = by_queue(Shortfall(group.queue, {})), group.status
    conditions = _with(old.conditions or (), SCHEDULED, "False", verdict.group_reason, session)
    said = _condition(session, UNSCHEDULABLE, "True", verdict.group_reason, verdict.message)
    others = [each for each in conditions if each.type != UNSCHEDULABLE]
    status = replace(old, phase=old.phase or PENDING, conditions=(*others, said))
    pods.add_all(waiting, verdict)
    return GroupResult(
        group=group,
        status=status,
        write=differ(status, old),
        tasks={TaskStatus.PENDING.text: len(waiting)},
        verdict=verdict,
    )


def _waits(pod: PodInfo) -> bool:
    return not (pod.node_name or pod.deleting or pod.finished)


class _PodResults:
    """Collects the conditions of waiting pods: those to write, and the pods that have theirs already."""

    def __init__(self) -> None:
        self.found: list[PodResult] = []
        self.confirmed: list[PodInfo] = []

    def add(self, pod: PodInfo, verdict: Verdict, nominated: str = "") -> None:
        """Add the condition that follows from the verdict.

        The API server itself sets the condition SchedulingGated when it creates a pod with gates.
        """
        known, reason, message = pod.condition, verdict.reason, verdict.message
        if known is None:
            is_said = reason == SCHEDULING_GATED
        else:
            is_said = known[1] == reason and known[0] == "False"
            is_said = is_said and (known[2] == message or reason == SCHEDULING_GATED)
        if is_said and (not nominated or nominated == pod.nominated_node_name):
            self.confirmed.append(pod)
        else:
            self.found.append(PodResult(pod=pod, reason=reason, message=message, nominated=nominated))

    def add_all(self, pods: Iterable[PodInfo], verdict: Verdict) -> None:
        """Add the conditions of pods without a group or queue; gated ones wait for their gates first."""
        for pod in pods:
            self.add(pod, of_own_gates(stands_by=not pod.closed_gates) if pod.gates else verdict)


def _phase(session: Session, job: JobInfo, *, mapped: bool) -> str:
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
            # The minimum consists of ended members, and other members still have to run.
            return RUNNING
    return INQUEUE if job.phase == INQUEUE else PENDING


def differ(new: PodGroupStatus, old: PodGroupStatus) -> bool:
    """Return whether the statuses differ; times and session IDs of conditions are not compared."""
    numbers = ("phase", "running", "succeeded", "failed")
    if any(getattr(new, name) != getattr(old, name) for name in numbers):
        return True
    return [*map(_said, new.conditions or ())] != [*map(_said, old.conditions or ())]


def _said(condition: PodGroupCondition) -> tuple[str, str, str, str]:
    return condition.type, condition.status, condition.reason, condition.message


def _events(job: JobInfo, result: GroupResult, message: str, *, mapped: bool) -> list[GroupEvent]:
    if job.phase in _INCOMPLETE:
        pending = len(job.by_status[TaskStatus.PENDING])
        if mapped and not pending:
            # Its members do not exist so far or are being bound. Volcano warns that `0/10 tasks` are unschedulable.
            return []
        verdict = result.verdict
        if mapped and verdict is not None and not verdict.wants_nodes:
            return [GroupEvent(job.group.key, "Warning", verdict.group_reason, _said_of(job, verdict, message))]
        text = f"{pending}/{len(job.tasks)} tasks in gang unschedulable: {message}"
        return [GroupEvent(job.group.key, "Warning", UNSCHEDULABLE, text)]
    if result.write:
        return [GroupEvent(job.group.key, "Normal", "Scheduled", GROUP_READY)]
    return []


def _decide_pods(
    pods: _PodResults,
    job: JobInfo,
    job_message: str,
    held: Mapping[str, Verdict],
    group: Verdict | None,
    *,
    mapped: bool,
) -> None:
    """Add the conditions of waiting tasks; for gated pods the API server has set the condition already."""
    for status in _WAITING:
        for task in job.by_status[status].values():
            pod = task.pod
            if task.gated and (not mapped or pod.condition is None or pod.condition[1] == SCHEDULING_GATED):
                continue
            reason, message, nominated = scheduling_reason(task)
            message = message or job_message
            if mapped:
                pods.add(pod, of_task(task, group, held, message), nominated)
                continue
            said = pod.condition[:3] if pod.condition is not None else None
            if said != ("False", reason, message) or (nominated and nominated != pod.nominated_node_name):
                pods.found.append(PodResult(pod=pod, reason=reason, message=message, nominated=nominated))


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
    """Return the usage of each queue's own pods with a node, of all schedulers."""
    return {name: plus(book.own(name, Standing.ASSUMED), book.own(name, Standing.BOUND)) for name in book.names()}


def queue_results(
    queues: Mapping[str, QueueInfo], own: Mapping[str, Vector], said: Mapping[str, Vector]
) -> list[QueueResult]:
    """Return the usage of each queue including its children.

    `own` is the usage of each queue's own pods, `said` the usage in the statuses of the objects.
    """
    held = {name: zero() for name in queues}
    for queue, total in own.items():
        for name in _upwards(queues, queue):
            add_to(held[name], total)
    return [
        QueueResult(queue=queue, allocated=held[name], write=said.get(name) != held[name])
        for name, queue in queues.items()
    ]


def _upwards(queues: Mapping[str, QueueInfo], name: str) -> list[str]:
    """Return a queue and its ancestors, up to the first that does not exist."""
    found: list[str] = []
    while name in queues and name not in found:
        found.append(name)
        name = queues[name].parent or ROOT_QUEUE
    return found


def _rid_of_nothing(vector: Vector) -> Vector:
    """Return the vector without zeros, which remain from tasks that no longer hold anything."""
    return {resource: amount for resource, amount in vector.items() if amount}
