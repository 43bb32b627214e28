"""gang: a job runs with its minimum or not at all (`pkg/scheduler/plugins/gang`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from agent_scheduler.objects.batch import PodGroupCondition

from ..conf import PluginOption
from ..hooks import PERMIT, REJECT, Hooks, Invalid
from ..messages import fit_error
from ..model import HOLDING, READY, Job, SubJob, Task, TaskStatus

if TYPE_CHECKING:
    from ..session import Session

NOT_ENOUGH_PODS: Final = "NotEnoughTasks"
NOT_ENOUGH_PODS_OF_TASK: Final = "NotEnoughPodsOfTask"
NOT_ENOUGH_RESOURCES: Final = "NotEnoughResources"
#: Not Volcano's: no room that there is would help a gang whose members have gates.
GATED: Final = "SchedulingGated"

#: Tasks that run, or still may.
_VALID: Final = (*READY, TaskStatus.PIPELINED, TaskStatus.PENDING)
_PIPELINED: Final = (*READY, TaskStatus.PIPELINED)


def _valid(job: Job) -> Invalid | None:
    """Whether it has the members that its minimums ask for, in all, by role and by sub-group."""
    if not job.roles_have(_VALID):
        return Invalid(NOT_ENOUGH_PODS_OF_TASK, "Not enough valid pods of each task for gang-scheduling")
    if not _sub_groups_have(job, lambda _: True):
        return Invalid(NOT_ENOUGH_PODS_OF_TASK, "Not enough valid subGroups of each task for gang-scheduling")
    valid = job.in_statuses(_VALID)
    if valid < job.minimum:
        return Invalid(
            NOT_ENOUGH_PODS, f"Not enough valid tasks for gang-scheduling, valid: {valid}, min: {job.minimum}"
        )
    return None


def _sub_groups_have(job: Job, which: Callable[[SubJob], bool]) -> bool:
    """Whether each policy has its minimum of sub-groups of this kind."""
    if not job.sub_minimums:
        return True
    found = Counter(sub_job.policy for sub_job in job.sub_jobs.values() if which(sub_job))
    return all(found[policy] >= least for policy, least in job.sub_minimums.items())


def _protected(preemptor: Task, tasks: Sequence[Task]) -> Sequence[Task]:
    """What a job has above its minimum may go."""
    left: dict[str, int] = {}
    victims = []
    for task in tasks:
        job = task.job
        ready = left.get(job.uid)
        if ready is None:
            ready = job.ready
        if ready > job.minimum:
            ready -= 1
            victims.append(task)
        left[job.uid] = ready
    return victims


_is_ready = attrgetter("is_ready")
_is_pipelined = attrgetter("is_pipelined")


def _ready(job: Job) -> bool:
    has = job.is_ready and job.roles_have(READY) and _sub_groups_have(job, _is_ready)
    return has and _somebody_runs(job, READY)


def _somebody_runs(job: Job, statuses: Iterable[TaskStatus]) -> bool:
    """Whether not all that have room in these statuses stand by: those are bound after others have run, and while these
    have none they would keep theirs for nothing (docs/decisions/0047). Who has succeeded has run, but may not be
    enough."""
    nobody = True
    for status in statuses:
        if status is TaskStatus.SUCCEEDED:
            continue
        for task in job.by_status[status].values():
            if not task.pod.stands_by:
                return True
            nobody = False
    return nobody or (bool(job.by_status[TaskStatus.SUCCEEDED]) and not job.earlier_stage_waits)


def _pipelined(job: Job) -> int:
    will = job.is_pipelined and job.roles_have(_PIPELINED) and _sub_groups_have(job, _is_pipelined)
    return PERMIT if will and _somebody_runs(job, _PIPELINED) else REJECT


def _sub_job_pipelined(sub_job: SubJob) -> int:
    return PERMIT if sub_job.is_pipelined else REJECT


def gang(session: Session, option: PluginOption) -> Hooks:
    def job_closed(job: Job) -> None:
        if job.tasks and (job.is_ready or not _is_leaving(job)):
            job.set_condition(_condition(session, job))

    return Hooks(
        job_order=_is_ready,
        sub_job_order=_is_ready,
        job_valid=_valid,
        job_ready=_ready,
        sub_job_ready=_is_ready,
        job_pipelined=_pipelined,
        sub_job_pipelined=_sub_job_pipelined,
        job_starving=attrgetter("is_starving"),
        preemptable=_protected,
        reclaimable=_protected,
        job_closed=job_closed,
    )


def _is_leaving(job: Job) -> bool:
    """Whether it has its minimum with the pods that are being evicted: it lacks nothing that it waits for. One that
    is deleted before it has a node leaves nothing."""
    leaving = sum(bool(task.node_name) for task in job.by_status[TaskStatus.RELEASING].values())
    return job.ready + job.best_effort + leaving >= job.minimum


def _condition(session: Session, job: Job) -> PodGroupCondition:
    reason, message = "tasks in gang are ready to be scheduled", ""
    if not job.is_ready:
        placed = sum(task.attempt[0] in HOLDING for task in job.by_status[TaskStatus.PENDING].values())
        missing = job.minimum - job.ready - placed
        message = f"{missing}/{len(job.tasks)} tasks in gang unschedulable: {fit_error(job)}"
        reason = NOT_ENOUGH_RESOURCES
        gated = sum(task.gated for task in job.by_status[TaskStatus.PENDING].values())
        if session.asks_book and gated > len(job.tasks) - job.minimum:
            reason = GATED
            message = f"{gated}/{len(job.tasks)} tasks in gang have scheduling gates: {fit_error(job)}"
    return PodGroupCondition(
        type="Unschedulable" if message else "Scheduled",
        status="True",
        transition_id=session.uid,
        last_transition_time=session.now or None,
        reason=reason,
        message=message,
    )
