"""What the jobs of a session hold and ask for, for the plugins of queues."""

from __future__ import annotations

from ..quotas.demand import JobDemand
from ..quotas.vector import Total, add_to
from .model import HOLDING, Job, TaskStatus


def demand_of(job: Job) -> JobDemand:
    pending: Total = {}
    for task in job.by_status[TaskStatus.PENDING].values():
        add_to(pending, task.request)
    return JobDemand(
        queue=job.queue,
        phase=job.phase,
        min_member=job.group.minimum,
        minimum=job.min_resources,
        allocated=dict(job.allocated),
        holding=job.in_statuses(HOLDING),
        pending=pending,
        gated=job.gated_request(),
    )
