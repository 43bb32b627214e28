"""Converts between jobs of a session and the accounts of queues: demands and gauges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..quotas.accounts import Gauges
from ..quotas.demand import JobDemand
from ..quotas.vector import COMMON, CPU, MEMORY, Total, Vector
from .model import HOLDING, JobInfo, TaskInfo, TaskStatus


def demand_of(job: JobInfo) -> JobDemand:
    """Return what a job holds and requests."""
    return JobDemand(
        queue=job.queue,
        phase=job.phase,
        min_member=job.group.minimum,
        minimum=job.min_resources,
        allocated=dict(job.allocated),
        holding=job.in_statuses(HOLDING),
        pending=requests_of(job.by_status[TaskStatus.PENDING].values()),
        gated=job.gated_request(),
    )


def requests_of(tasks: Iterable[TaskInfo]) -> Total:
    """Return the sum of the tasks' requests. Tasks of one class share a vector, so the cost is one step per class."""
    numbers: dict[int, int] = {}
    vectors: dict[int, Vector] = {}
    for task in tasks:
        key = id(task.request)
        numbers[key] = numbers.get(key, 0) + 1
        vectors[key] = task.request
    total: Total = {}
    for key, vector in vectors.items():
        for resource, amount in vector.items():
            total[resource] = total.get(resource, 0) + amount * numbers[key]
    return total


def admitted_minimum(job: JobInfo) -> Vector | None:
    """Return what an Inqueue job reserves in its queue: its minimum without gated tasks; None if it sets none."""
    if job.min_resources is None:
        return None
    gated = JobDemand(queue=job.queue, phase=job.phase, gated=job.gated_request())
    return gated.without_gated(job.min_resources)


def gauges(found: Mapping[str, Gauges]) -> dict[str, dict[str, float]]:
    """Return the gauges as queue -> name -> value; names of other resources than cpu and memory contain `Scalar`."""
    return {queue: _named(each) for queue, each in found.items()}


def _named(gauges: Gauges) -> dict[str, float]:
    named: dict[str, float] = {}
    for name, vector in (
        ("allocated", gauges.allocated),
        ("request", gauges.request),
        ("inqueue", gauges.inqueue),
        ("deserved", gauges.deserved),
        ("realCapacity", gauges.real_capability),
    ):
        if vector is None:
            continue
        named[f"{name}MilliCPU"] = vector.get(CPU, 0)
        named[f"{name}Memory"] = vector.get(MEMORY, 0)
        others = (resource for resource in vector if resource not in COMMON)
        named.update({f"{name}Scalar {resource}": vector[resource] for resource in others})
    if gauges.share is not None:
        named["share"] = gauges.share
    if gauges.overused is not None:
        named["overused"] = float(gauges.overused)
    return named
