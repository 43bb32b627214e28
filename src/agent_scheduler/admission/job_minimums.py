"""What the minimums of a job and of its tasks have to do with one another.

    job's | tasks'                  | what becomes of it
    none  | any                     | the job's is made the sum of the tasks', and a task without one counts whole
    given | one task without one    | the task's is made the job's
    given | anything else           | the job's has to be the sum of the tasks'

With less, Volcano passes over the minimums of tasks; and whether a gang may run would depend on which of its pods find
room first. The table is that of Volcano's design; its webhook itself takes any job's minimum up to all replicas.
"""

from __future__ import annotations

from agent_scheduler.objects.job import JobSpec, TaskSpec


def minimum_of(spec: JobSpec, task: TaskSpec) -> int:
    """The minimum that a task of the job has, or is given if it has none."""
    partition = task.partition_policy
    has_one = task.min_available is not None or (partition is not None and partition.min_partitions > 0)
    if not has_one and spec.min_available and len(spec.tasks or ()) == 1:
        return spec.min_available
    return task.minimum


def strict_problem(spec: JobSpec) -> str:
    """Why the minimums do not fit together, or empty. The job's is one that was given."""
    tasks = spec.tasks or ()
    wanted = sum(minimum_of(spec, task) for task in tasks)
    if spec.min_available == wanted:
        return ""
    parts = " + ".join(f"{task.name} {task.minimum}" for task in tasks)
    return (
        f"spec.minAvailable: {spec.min_available} is not the sum of the tasks' minAvailable, or replicas where a task "
        f"has none; allowed: {wanted} ({parts}), or none, which is made that"
    )
