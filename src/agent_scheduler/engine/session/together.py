"""Members of a gang that are placed together where devices did not suffice for one after the other
(`decide.gang_placing`)."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ..decide.gang_placing import may_help
from .model import Job, SubJob, Task
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
    counts = job if sub_job is None else sub_job
    needed = counts.minimum - counts.ready - counts.best_effort
    members = session.tiers.in_pending_order(job, [*placed, *left])
    if job.role_minimums:
        # With those that come first each role has its minimum.
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
