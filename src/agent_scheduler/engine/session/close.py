"""What a session leaves behind: phases and conditions of groups, conditions of pods, events, what queues hold
(`job_updater.go`, `updateQueueStatus` and the cache's `RecordJobStatusEvent`)."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from math import inf
from typing import Final

from msgspec import Struct

from agent_scheduler.objects.batch import ROOT_QUEUE, PodGroupCondition, PodGroupStatus

from ..gangs.group import COMPLETED, INQUEUE, PENDING, RUNNING, UNKNOWN, Group
from ..quotas.accounts import zero
from ..quotas.book import QuotaBook
from ..quotas.queues import QueueInfo
from ..quotas.vector import Total, Vector, add_to
from ..state.batchinfo import GroupKey
from ..state.podinfo import PodInfo
from .explain import waits_for
from .messages import GROUP_READY, UNSCHEDULABLE, fit_error, scheduling_reason
from .model import HOLDING, Job, TaskStatus
from .session import Event, Session
from .settled import STRIDE, Settled, at_rest, settles
from .written import NOBODY, Hold, holds, written_condition

_SCHEDULED: Final = (TaskStatus.BOUND, TaskStatus.RUNNING, TaskStatus.SUCCEEDED, TaskStatus.FAILED)
_COMPLETED: Final = (TaskStatus.SUCCEEDED, TaskStatus.FAILED)
_INCOMPLETE: Final = (UNKNOWN, PENDING, INQUEUE)
#: Statuses of the tasks that are told why they wait.
_WAITING: Final = (TaskStatus.ALLOCATED, TaskStatus.PENDING, TaskStatus.PIPELINED)


class GroupResult(Struct, frozen=True, kw_only=True):
    group: Group
    status: PodGroupStatus
    #: Whether it differs from what the object has.
    write: bool
    #: Status -> tasks.
    tasks: Mapping[str, int]
    #: One of `explain.WAITS_FOR`; empty for a group that has its minimum.
    waits_for: str
    #: Whether others were chosen to leave for it, and have not left.
    preempts: bool = False


class PodResult(Struct, frozen=True, kw_only=True):
    """A PodScheduled condition, status False, that the pod does not have yet; `nominated` is empty for no node."""

    pod: PodInfo
    reason: str
    message: str
    nominated: str = ""


class QueueResult(Struct, frozen=True, kw_only=True):
    """What the pods of a queue and of those below it hold."""

    queue: QueueInfo
    allocated: Total
    #: Whether its status says otherwise.
    write: bool


class Result(Struct, frozen=True, kw_only=True):
    groups: Sequence[GroupResult]
    pods: Sequence[PodResult]
    queues: Sequence[QueueResult]
    #: In the order in which they came.
    events: Sequence[Event]
    #: Pods that are to lose the gate of their queue's capacity.
    ungated: Sequence[PodInfo]
    #: Job -> dominant share, where drf is configured.
    shares: Mapping[str, float]
    #: Queue -> name -> value.
    gauges: Mapping[str, Mapping[str, float]]
    #: UID -> what keeps a pod back that no node would help; empty where the book was not asked.
    held: Mapping[str, Hold]
    #: Jobs that later sessions need not look at while nothing about them changes; none where no book was asked.
    settled: Mapping[GroupKey, Settled]
    #: When a session would come to something else though nothing else had changed, in seconds of the epoch.
    turns_at: float


def close(
    session: Session, book: QuotaBook | None = None, given_back: Mapping[str, str] = NOBODY
) -> Generator[None, None, Result]:
    """To be run when `Session.run` has come to its end, one step at a time, too.

    With the book of queues the conditions of pods are those that are to be written (`written`), else Volcano's.
    """
    mapped = book is not None
    held = {} if book is None else (yield from holds(session, book, given_back))
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
        result = _group_result(session, job, held)
        groups.append(result)
        # Only of a job that waits anything is said for which this is needed.
        message = fit_error(job) if job.phase in _INCOMPLETE or job.in_statuses(_WAITING) else ""
        events += _events(job, result, message, mapped=mapped)
        said = _pod_results(job, message, held, mapped=mapped)
        pods += said
        if may_settle and not (said or result.write or is_held) and at_rest(session, job):
            share = session.shares.get(job.uid)
            settled[key] = Settled(job=job, demand=demand, result=result, share=share)
        yield
    gauges: dict[str, dict[str, float]] = {}
    for gauges_of in session.tiers.every("gauges"):
        for queue, values in gauges_of().items():
            gauges.setdefault(queue, {}).update(values)
    queues = yield from _queue_results(session)
    return Result(
        groups=groups,
        pods=pods,
        queues=queues,
        events=events,
        ungated=[task.pod for task in session.gates_removed.values()],
        shares=session.shares,
        gauges=gauges,
        held=held,
        settled=settled,
        turns_at=min((turns_at() for turns_at in session.tiers.every("turns_at")), default=inf),
    )


def _group_result(session: Session, job: Job, held: Mapping[str, Hold]) -> GroupResult:
    old = job.group.status
    job.phase = _phase(session, job)
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
        waits_for=waits_for(session, job, held),
        preempts=any(task.evicting or task.pod.nominated_node_name for task in job.pipelined_tasks()),
    )


def _phase(session: Session, job: Job) -> str:
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
        return COMPLETED if scheduled == job.in_statuses(_COMPLETED) else RUNNING
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
        text = f"{pending}/{len(job.tasks)} tasks in gang unschedulable: {message}"
        return [Event(job.group.key, "Warning", UNSCHEDULABLE, text)]
    if result.write:
        return [Event(job.group.key, "Normal", "Scheduled", GROUP_READY)]
    return []


def _pod_results(job: Job, job_message: str, held: Mapping[str, Hold], *, mapped: bool) -> list[PodResult]:
    """Of a gated pod the API server has said so itself."""
    found = []
    for status in _WAITING:
        for task in job.by_status[status].values():
            if task.gated:
                continue
            reason, message, nominated = scheduling_reason(task)
            message = message or job_message
            if mapped:
                reason, message = written_condition(reason, message, held.get(task.uid))
            pod = task.pod
            said = pod.condition[:3] if pod.condition is not None else None
            if said != ("False", reason, message) or (nominated and nominated != pod.nominated_node_name):
                found.append(PodResult(pod=pod, reason=reason, message=message, nominated=nominated))
    return found


def _queue_results(session: Session) -> Generator[None, None, list[QueueResult]]:
    queues = session.queues
    held = {name: zero() for name in queues}
    own: dict[str, Total] = {name: {} for name in session.queue_demands}
    for number, job in enumerate(session.jobs.values()):
        if not number % STRIDE:
            yield
        if job.allocated and job.in_statuses(HOLDING):
            add_to(own[job.queue], _rid_of_nothing(job.allocated))
    for queue, total in own.items():
        for name in _upwards(queues, queue):
            add_to(held[name], total)
    said = session.view.held
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
