"""What is said of jobs and tasks that wait, in Volcano's words (`job_info.go`)."""

from __future__ import annotations

from collections import Counter
from typing import Final

from .fit import histogram
from .model import Job, Task, TaskStatus

GROUP_READY: Final = "pod group is ready"
GROUP_NOT_READY: Final = "pod group is not ready"

UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULABLE: Final = "Schedulable"


def fit_error(job: Job) -> str:
    """How its tasks stand, why those that are pending are so, and what one of them lacks (`FitError`)."""
    counts = {status.text: len(job.by_status[status]) for status in TaskStatus if job.by_status[status]}
    counts["minAvailable"] = job.minimum
    text = f"{GROUP_READY if job.is_ready else GROUP_NOT_READY}, {histogram(counts)}"
    pending = job.by_status[TaskStatus.PENDING]
    if pending:
        text += f"; Pending: {histogram(Counter(scheduling_reason(task)[0] for task in pending.values()))}"
    if job.job_fit_error:
        return f"{text}. Origin reason is: {job.job_fit_error}"
    for uid, task in job.tasks.items():
        found = job.fit_errors.get(uid)
        if found is not None:
            return f"{text}. Origin reason is {task.pod.name}: {found.message}"
    return text


def scheduling_reason(task: Task) -> tuple[str, str, str]:
    """(reason, message, node that the pod is nominated to) (`TaskSchedulingReason`); an empty message for what the job
    says of itself."""
    job = task.job
    status, node, evicting = task.attempt
    where = f"Pod {task.pod.key} can possibly be assigned to {node}, once"
    if status is TaskStatus.ALLOCATED:
        return SCHEDULABLE, f"{where} minAvailable is satisfied", ""
    if status is TaskStatus.PIPELINED:
        return (
            UNSCHEDULABLE,
            f"{where} resource is released and minAvailable is satisfied",
            node if evicting else "",
        )
    if status is TaskStatus.PENDING:
        found = job.fit_errors.get(task.uid)
        return UNSCHEDULABLE, job.job_fit_error if found is None else found.message, ""
    return status.text, job.job_fit_error, ""
