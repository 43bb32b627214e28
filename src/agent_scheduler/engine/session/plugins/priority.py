"""priority: orders jobs and tasks by descending priority, and lets them preempt those of lower priority."""

from __future__ import annotations

from collections.abc import Sequence

from ..conf import PluginOption
from ..hooks import Hooks
from ..model import JobInfo, SubJobInfo, TaskInfo
from ..session import Session


def _job_order(job: JobInfo) -> int:
    return -job.priority


def _sub_job_order(sub_job: SubJobInfo) -> int:
    return -sub_job.priority


def _task_order(task: TaskInfo) -> int:
    return -task.priority


def _preemptable(preemptor: TaskInfo, tasks: Sequence[TaskInfo]) -> Sequence[TaskInfo]:
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


def _starving(job: JobInfo) -> bool:
    """Return whether some of the job's tasks have neither room nor a claim."""
    return job.ready + job.waiting < len(job.tasks)
