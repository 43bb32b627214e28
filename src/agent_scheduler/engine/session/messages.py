"""Builds the messages about waiting jobs and tasks, with Volcano's wording (`job_info.go`)."""

from __future__ import annotations

from typing import Final

from ..verdicts import UNSCHEDULABLE
from .fit import histogram
from .model import HOLDING, WITHOUT_ROOM, JobInfo, TaskInfo, TaskStatus

GROUP_READY: Final = "pod group is ready"
GROUP_NOT_READY: Final = "pod group is not ready"

#: The message of the condition `Scheduled` of a group that has its minimum.
GANG_READY: Final = "tasks in gang are ready to be scheduled"
SCHEDULABLE: Final = "Schedulable"


def fit_error(job: JobInfo) -> str:
    """Return the counts of tasks by status, the reasons of pending ones, and what one of them lacks (`FitError`)."""
    counts = job.counts
    counts["minAvailable"] = job.minimum
    text = f"{GROUP_READY if job.is_ready else GROUP_NOT_READY}, {histogram(counts)}"
    pending = job.by_status[TaskStatus.PENDING]
    if pending:
        reasons: dict[str, int] = {}
        for task in pending.values():
            reason = _reason(task.attempt[0])
            reasons[reason] = reasons.get(reason, 0) + 1
        text += f"; Pending: {histogram(reasons)}"
    if job.job_fit_error:
        return f"{text}. Origin reason is: {job.job_fit_error}"
    for uid, task in job.tasks.items():
        found = job.fit_errors.get(uid)
        if found is not None:
            return f"{text}. Origin reason is {task.pod.name}: {found.message}"
    return text


def gang_unschedulable(job: JobInfo, message: str) -> str:
    """Return the message of a gang's condition: the number of unplaced tasks, and `message` from `fit_error`."""
    placed = sum(task.attempt[0] in HOLDING for task in job.by_status[TaskStatus.PENDING].values())
    missing = job.minimum - job.ready - placed
    return f"{missing}/{len(job.tasks)} tasks in gang unschedulable: {message}"


def scheduling_reason(task: TaskInfo) -> tuple[str, str, str]:
    """Return (reason, message, nominated node) of a task (`TaskSchedulingReason`).

    An empty message means that the message of the job applies.
    """
    job = task.job
    status, node, evicting = task.attempt
    reason = _reason(status)
    if status is TaskStatus.PENDING:
        found = job.fit_errors.get(task.uid)
        return reason, job.job_fit_error if found is None else found.message, ""
    if status is TaskStatus.ALLOCATED:
        return reason, f"{_possible(task, node)} minAvailable is satisfied", ""
    if status is TaskStatus.PIPELINED:
        message = f"{_possible(task, node)} resource is released and minAvailable is satisfied"
        return reason, message, node if evicting else ""
    return reason, job.job_fit_error, ""


def _reason(status: TaskStatus) -> str:
    if status is TaskStatus.ALLOCATED:
        return SCHEDULABLE
    return UNSCHEDULABLE if status in WITHOUT_ROOM else status.text


def _possible(task: TaskInfo, node: str) -> str:
    return f"Pod {task.pod.key} can possibly be assigned to {node}, once"
