"""gang: a job runs with its minimum or not at all (`pkg/scheduler/plugins/gang`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from agent_scheduler.objects.batch import SCHEDULED, PodGroupCondition

from ...verdicts import NOT_ENOUGH_RESOURCES, NOT_ENOUGH_TASKS, UNSCHEDULABLE
from ..conf import PluginOption
from ..hooks import PERMIT, REJECT, Hooks, Invalid
from ..messages import GANG_READY, fit_error, gang_unschedulable
from ..model import READY, JobInfo, SubJobInfo, TaskInfo, TaskStatus
from ..session import Session

NOT_ENOUGH_PODS_OF_TASK: Final = "NotEnoughPodsOfTask"
#: Statuses of tasks that run, have succeeded or may still run.
_VALID: Final = (*READY, TaskStatus.PIPELINED, TaskStatus.PENDING)
_PIPELINED: Final = (*READY, TaskStatus.PIPELINED)


def _valid(job: JobInfo) -> Invalid | None:
    """Return why the job has too few members for its minimums, in total, by role or by sub-group; None if not."""
    if not job.roles_have(_VALID):
        return Invalid(NOT_ENOUGH_PODS_OF_TASK, "Not enough valid pods of each task for gang-scheduling")
    if job.sub_minimums and not _sub_groups_have(job, Counter(each.policy for each in job.sub_jobs.values())):
        return Invalid(NOT_ENOUGH_PODS_OF_TASK, "Not enough valid subGroups of each task for gang-scheduling")
    valid = job.in_statuses(_VALID)
    if valid < job.minimum:
        return Invalid(
            NOT_ENOUGH_TASKS, f"Not enough valid tasks for gang-scheduling, valid: {valid}, min: {job.minimum}"
        )
    return None


def _sub_groups_have(job: JobInfo, found: Counter[str]) -> bool:
    """Return whether each policy has its minimum in `found`, the number of its sub-groups."""
    return all(found[policy] >= least for policy, least in job.sub_minimums.items())


def _protected(preemptor: TaskInfo, tasks: Sequence[TaskInfo]) -> Sequence[TaskInfo]:
    """Return the tasks that may be evicted: those that their jobs have beyond the minimum."""
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


def _ready(job: JobInfo) -> bool:
    has = job.is_ready and job.roles_have(READY) and _sub_groups_have(job, job.ready_sub_jobs)
    return has and _somebody_runs(job, READY)


def _somebody_runs(job: JobInfo, statuses: Iterable[TaskStatus]) -> bool:
    """Return whether the tasks with room in these statuses are not all of later stages.

    Tasks of later stages are bound after the earlier stages have run. Without room for an earlier stage they would hold
    theirs in vain (docs/decisions/0047). Succeeded tasks have run, but suffice only if no earlier stage waits.
    """
    nobody = True
    for status in statuses:
        if status is TaskStatus.SUCCEEDED:
            continue
        for task in job.by_status[status].values():
            if not task.pod.stands_by:
                return True
            nobody = False
    return nobody or (bool(job.by_status[TaskStatus.SUCCEEDED]) and not job.earlier_stage_waits)


def _pipelined(job: JobInfo) -> int:
    will = job.is_pipelined and job.roles_have(_PIPELINED) and _sub_groups_have(job, job.pipelined_sub_jobs)
    return PERMIT if will and _somebody_runs(job, _PIPELINED) else REJECT


def _sub_job_pipelined(sub_job: SubJobInfo) -> int:
    return PERMIT if sub_job.is_pipelined else REJECT


def gang(session: Session, option: PluginOption) -> Hooks:
    """Return the hooks of the plugin gang."""

    def job_closed(job: JobInfo) -> None:
        if job.tasks and (job.is_ready or not job.is_leaving):
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


def _condition(session: Session, job: JobInfo) -> PodGroupCondition:
    """Return the condition with Volcano's wording; `close` replaces it by one that follows from the verdict."""
    return PodGroupCondition(
        type=SCHEDULED if job.is_ready else UNSCHEDULABLE,
        status="True",
        transition_id=session.uid,
        last_transition_time=session.now or None,
        reason=GANG_READY if job.is_ready else NOT_ENOUGH_RESOURCES,
        message="" if job.is_ready else gang_unschedulable(job, fit_error(job)),
    )
