"""The phases of a Job and their transitions, by Volcano's rules (`pkg/controllers/job/state`). Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from agent_scheduler.objects.job import Job, JobStatus, TaskSpec

PENDING: Final = "Pending"
RUNNING: Final = "Running"
RESTARTING: Final = "Restarting"
ABORTING: Final = "Aborting"
ABORTED: Final = "Aborted"
TERMINATING: Final = "Terminating"
TERMINATED: Final = "Terminated"
COMPLETING: Final = "Completing"
COMPLETED: Final = "Completed"
FAILED: Final = "Failed"

SYNC_JOB: Final = "SyncJob"
ABORT_JOB: Final = "AbortJob"
RESTART_JOB: Final = "RestartJob"
RESTART_TASK: Final = "RestartTask"
RESTART_POD: Final = "RestartPod"
RESTART_PARTITION: Final = "RestartPartition"
TERMINATE_JOB: Final = "TerminateJob"
COMPLETE_JOB: Final = "CompleteJob"
RESUME_JOB: Final = "ResumeJob"

#: Phases in which pods are removed, and the phase that follows once none is alive.
ENDING: Final = {ABORTING: ABORTED, TERMINATING: TERMINATED, COMPLETING: COMPLETED}
#: Phases after which no pod of the Job runs again.
FINISHED: Final = frozenset({COMPLETED, FAILED, TERMINATED})
#: Phases without a PodGroup, in which no pod is alive or stays alive.
CLOSED: Final = FINISHED | {ABORTED} | ENDING.keys()
#: Phases in which policies apply.
ACTIVE: Final = frozenset({PENDING, RUNNING})
#: All phases.
PHASES: Final = CLOSED | ACTIVE | {RESTARTING}

#: Phases of pods that have ended.
ENDED: Final = frozenset({"Succeeded", "Failed"})
#: The retry limit of a Job that sets none.
_MAX_RETRY: Final = 3


class Scope(enum.Enum):
    """The pods that an action removes."""

    JOB = enum.auto()
    TASK = enum.auto()
    PARTITION = enum.auto()
    POD = enum.auto()


@dataclass(frozen=True, slots=True)
class Kill:
    """Remove the pods whose phase is not in `retain`, and enter phase `to`. If `restarts`, it counts as a retry."""

    to: str
    scope: Scope = Scope.JOB
    restarts: bool = False
    retain: frozenset[str] = ENDED


_CLOSING: Final = {ABORT_JOB: ABORTING, TERMINATE_JOB: TERMINATING, COMPLETE_JOB: COMPLETING}
_RESTARTS: Final = {
    RESTART_JOB: Scope.JOB,
    RESTART_TASK: Scope.TASK,
    RESTART_PARTITION: Scope.PARTITION,
    RESTART_POD: Scope.POD,
}


def kill_for(job: Job, action: str) -> Kill | None:
    """Return which pods of the Job the action removes; None if none."""
    phase = job.status.state.phase or PENDING
    if action in _CLOSING and phase in ACTIVE | {RESTARTING}:
        return Kill(_CLOSING[action])
    if action in _RESTARTS and phase in ACTIVE:
        scope = _RESTARTS[action]
        # The last retry keeps the pods that show how it ended.
        last = scope is Scope.JOB and job.status.retry_count >= max_retry(job) - 1
        return Kill(RESTARTING, scope, restarts=True, retain=ENDED if last else frozenset())
    if action == RESUME_JOB and phase in (ABORTING, ABORTED):
        return Kill(RESTARTING, restarts=True)
    return None


def tasks_of(job: Job) -> tuple[TaskSpec, ...]:
    return job.spec.tasks or ()


def max_retry(job: Job) -> int:
    return job.spec.max_retry or _MAX_RETRY


def next_phase(job: Job, status: JobStatus, *, let_in: bool = True, in_vain: int = 0) -> str:
    """Return the phase that follows without an action.

    `status` has the current phase of `job` and the counts of its pods. `let_in` is whether its group is admitted;
    before that, pods that run or have ended belong to an earlier try. `in_vain` is the number of pods that are never
    created because they wait for failed ones.
    """
    phase = status.state.phase
    if phase in ENDING:
        return phase if status.terminating or status.pending or status.running else ENDING[phase]
    if phase == PENDING and in_vain and status.succeeded + status.failed + in_vain == _replicas(job):
        # No pod runs or will run: the Job ends as it would if it had run before.
        return _from_running(job, status, in_vain)
    if phase == PENDING:
        started = status.running + status.succeeded + status.failed if let_in else 0
        return RUNNING if started >= job.spec.min_available else PENDING
    if phase == RUNNING:
        return _from_running(job, status, in_vain)
    if phase == RESTARTING:
        if status.retry_count >= max_retry(job):
            return FAILED
        there = _replicas(job) - status.terminating
        return PENDING if there >= job.spec.min_available else RESTARTING
    return phase


def _replicas(job: Job) -> int:
    return sum(each.replicas for each in tasks_of(job))


def _from_running(job: Job, status: JobStatus, in_vain: int) -> str:
    replicas, least = _replicas(job), job.spec.min_success
    if replicas == 0:
        # A Job that is scaled to zero resumes when it is scaled up.
        return RUNNING
    if least is not None and status.succeeded >= least:
        return COMPLETED
    if status.succeeded + status.failed + in_vain == replicas:
        if _lacks_a_task(job, status) or (least is not None and status.succeeded < least):
            return FAILED
        return COMPLETED if status.succeeded >= job.spec.min_available else FAILED
    return PENDING if status.pending > replicas - job.spec.min_available else RUNNING


def _lacks_a_task(job: Job, status: JobStatus) -> bool:
    """Return whether fewer pods of a task have succeeded than its minimum.

    This does not apply if the Job needs fewer pods than all its tasks together.
    """
    if job.spec.min_available < sum(task.minimum for task in tasks_of(job)):
        return False
    counts = status.task_status_count or {}
    return any(
        (counts[task.name].phase or {}).get("Succeeded", 0) < task.min_available
        for task in tasks_of(job)
        if task.min_available is not None and task.name in counts
    )
