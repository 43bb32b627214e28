"""Places members of a gang together if devices did not suffice for one after the other (`decide.gang_placing`)."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ..decide.gang_placing import may_help
from .model import JobInfo, SubJobInfo, TaskInfo
from .statement import Statement


def place_together(
    statement: Statement,
    job: JobInfo,
    sub_job: SubJobInfo | None,
    placed: Sequence[TaskInfo],
    left: Sequence[TaskInfo],
) -> Generator[None, None, Sequence[TaskInfo]]:
    """Search nodes for a gang's members together, in steps. Returns the placed members; empty if there is no solution.

    With these members, which are in `statement` then, the job or its sub-group is ready. `placed` are the members that
    the discarded statement had placed before, `left` the others that may be placed.
    """
    session = statement.session
    errors = job.fit_errors
    refused = [(task.pod, errors[task.uid].plugins) for task in left if task.uid in errors]
    if not may_help([task.pod for task in placed], refused):
        return ()
    counts = job if sub_job is None else sub_job
    needed = counts.minimum - counts.ready - counts.best_effort
    members = session.tiers.in_pending_order(job, [*placed, *left])
    if job.role_minimums:
        # The first `needed` members include the minimum of each role.
        members = members[:needed]
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
