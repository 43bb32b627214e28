"""overcommit: limits admitted groups to the cluster's capacity times a factor (`pkg/scheduler/plugins/overcommit`).

It has an effect only if groups are admitted by the capacity of the cluster, not if only by their queues' limits.
"""

from __future__ import annotations

from typing import Final

from ...quotas.vector import Total, add_to, insufficient, plus
from ...verdicts import UNSCHEDULABLE
from ..conf import PluginOption
from ..demand import admitted_minimum
from ..hooks import PERMIT, REJECT, Hooks
from ..model import JobInfo
from ..session import Session

FACTOR: Final = "overcommit-factor"
_DEFAULT_FACTOR: Final = 1.2


def overcommit(session: Session, option: PluginOption) -> Hooks:
    """Return the hooks of the plugin overcommit."""
    if not session.asks_cluster:
        return Hooks()
    factor = float(option.arguments.get(FACTOR, _DEFAULT_FACTOR))
    if factor < 1:
        factor = _DEFAULT_FACTOR
    usable, used = session.nodes.usable(), session.nodes.used()
    idle = {resource: amount * factor - used.get(resource, 0) for resource, amount in usable.items()}
    admitted: Total = {}
    for demand in session.queue_demands.values():
        add_to(admitted, demand.reserved)

    def enqueueable(job: JobInfo) -> int:
        if job.min_resources is None:
            return PERMIT
        short = insufficient(plus(admitted, job.min_resources), idle, job.min_resources)
        if not short:
            return PERMIT
        named = ", ".join(f"overused {resource}" for resource in short)
        session.record(job, "Normal", UNSCHEDULABLE, f"resource in cluster is overused: {named}")
        return REJECT

    def enqueued(job: JobInfo) -> None:
        minimum = admitted_minimum(job)
        if minimum is not None:
            add_to(admitted, minimum)

    return Hooks(job_enqueueable=enqueueable, job_enqueued=enqueued)
