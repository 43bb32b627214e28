"""The relation between the minimums of a job and of its tasks.

    job's | tasks'                  | result
    none  | any                     | the job's becomes the sum of the tasks'; a task without one counts completely
    given | one task without one    | the task's becomes the job's
    given | anything else           | the job's must be the sum of the tasks'

With a lower one, Volcano ignores the minimums of tasks, and whether a gang may run would depend on which of its pods
find room first. The table follows Volcano's design; its webhook itself accepts any job's minimum up to all replicas.
"""

from __future__ import annotations

from agent_scheduler.objects.job import JobSpec, TaskSpec

from .answers import listed


def minimum_of(spec: JobSpec, task: TaskSpec) -> int:
    """Return the minimum of a task, or its default."""
    partition = task.partition_policy
    has_one = task.min_available is not None or (partition is not None and partition.min_partitions > 0)
    if not has_one and spec.min_available and len(spec.tasks or ()) == 1:
        return spec.min_available
    return task.minimum


def strict_problem(spec: JobSpec) -> str:
    """Return why the job's specified minimum does not match its tasks, or an empty text."""
    tasks = spec.tasks or ()
    wanted = sum(minimum_of(spec, task) for task in tasks)
    if spec.min_available == wanted:
        return ""
    parts = listed([f"{task.name} {task.minimum}" for task in tasks], " + ")
    return (
        f"spec.minAvailable: {spec.min_available} is not the sum of the tasks' minAvailable, or replicas where a task "
        f"has none; allowed: {wanted} ({parts}), or none, which is made that"
    )
