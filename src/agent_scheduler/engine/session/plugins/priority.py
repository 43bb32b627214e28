"""priority: orders jobs and tasks by descending priority, and lets them preempt those of lower priority."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..conf import PluginOption
from ..hooks import Hooks
from ..model import Job, SubJob, Task

if TYPE_CHECKING:
    from ..session import Session


def _job_order(job: Job) -> int:
    return -job.priority


def _sub_job_order(sub_job: SubJob) -> int:
    return -sub_job.priority


def _task_order(task: Task) -> int:
    return -task.priority


def _preemptable(preemptor: Task, tasks: Sequence[Task]) -> Sequence[Task]:
    """Return tasks of jobs with a lower priority, and tasks of the same job with a lower task priority."""
    job = preemptor.job
    return [
        task
        for task in tasks
        if (task.job.priority < job.priority if task.job is not job else task.priority < preemptor.priority)
    ]


def priority(session: Session, option: PluginOption) -> Hooks:
    """Return the hooks of the plugin priority."""
    return Hooks(
        job_order=_job_order,
        sub_job_order=_sub_job_order,
        task_order=_task_order,
        preemptable=_preemptable,
        job_starving=_starving,
    )


def _starving(job: Job) -> bool:
    """Return whether some of the job's tasks have neither room nor a claim."""
    return job.ready + job.waiting < len(job.tasks)
