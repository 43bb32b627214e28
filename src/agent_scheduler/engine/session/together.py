"""Members of a gang that are placed together where devices did not suffice for one after the other
(`decide.gang_placing`)."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ..decide.gang_placing import may_help
from .model import READY, Job, SubJob, Task
from .statement import Statement


def place_together(
    statement: Statement, job: Job, sub_job: SubJob | None, placed: Sequence[Task], left: Sequence[Task]
) -> Generator[None, None, Sequence[Task]]:
    """Those that have places now, in a statement that was discarded and holds them: with them the job, or its
    sub-group, is ready. Else nobody.

    `placed`: those that it held. `left`: those that it did not, and that may be placed.
    """
    session = statement.session
    errors = job.fit_errors
    refused = [(task.pod, errors[task.uid].plugins) for task in left if task.uid in errors]
    if not may_help([task.pod for task in placed], refused):
        return ()
    members, needed = _members(job, sub_job, [*placed, *left])
    if not 1 < needed <= len(members):
        return ()
    placing = session.nodes.placing([task.pod for task in members], needed)
    while not placing.run():
        yield
    by_uid = {task.uid: task for task in members}
    found = [(by_uid[pod.uid], placement) for pod, placement in placing.found]
    queue = session.queues[job.queue]
    for task, placement in found:
        if not session.tiers.allocatable(queue, task) or not session.nodes.as_found(
            task, placement, statement.allocate
        ):
            statement.discard()
            return ()
    if not found or not session.tiers.sub_job_ready(job, sub_job):
        statement.discard()
        return ()
    job.forget_errors(task for task, _ in found)
    return [task for task, _ in found]


def _members(job: Job, sub_job: SubJob | None, tasks: Sequence[Task]) -> tuple[Sequence[Task], int]:
    """Those that may have places, and how many of them have to. Where roles count, exactly those that each lacks come
    first."""
    counts = job if sub_job is None else sub_job
    needed = counts.minimum - counts.ready - counts.best_effort
    if sub_job is not None or not job.role_minimums:
        return tasks, needed
    lacking = {
        role: least - job.in_role(role, READY, best_effort=True) for role, least in job.role_minimums.items()
    }
    first: list[Task] = []
    for task in tasks:
        if lacking.get(task.role, 0) > 0:
            lacking[task.role] -= 1
            first.append(task)
    if any(number > 0 for number in lacking.values()):
        return (), 0
    chosen = {task.uid for task in first}
    others = [task for task in tasks if task.uid not in chosen]
    members = [*first, *others[: max(needed - len(first), 0)]]
    return members, len(members)
