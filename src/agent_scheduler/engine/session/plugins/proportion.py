"""proportion: divides the cluster among queues by their weights (`pkg/scheduler/plugins/proportion`).

The accounts are `engine.quotas.proportion`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...quotas.proportion import ProportionAccounts, ProportionReclaiming
from ...quotas.queues import QueueInfo, QueueTree
from ...quotas.vector import Vector
from ..conf import PluginOption
from ..demand import admitted_minimum, gauges
from ..hooks import PERMIT, REJECT, Hooks
from ..lending import with_gangs
from ..model import JobInfo, TaskInfo
from ..session import Session


class _Proportion:
    """The plugin's state in one session. Owner: the session, by its hooks."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._lends = False
        self.accounts = ProportionAccounts(
            QueueTree(session.queues.values()),
            list(session.queue_demands.values()),
            session.total,
            others=session.view.others,
        )

    def queue_order(self, left: QueueInfo, right: QueueInfo) -> int:
        return self.accounts.compare(left.name, right.name)

    def job_enqueueable(self, job: JobInfo) -> int:
        if not self.session.asks_cluster:
            # The account of queues checks whether the queue is open, and keeps the job's turn if it is not.
            return PERMIT
        if not self.session.queues[job.queue].open:
            return REJECT
        if job.min_resources is None:
            return PERMIT
        refusal = self.accounts.cannot_admit(job.queue, job.min_resources)
        if refusal is None:
            return PERMIT
        self.session.record_refusal(job, refusal)
        return REJECT

    def job_enqueued(self, job: JobInfo) -> None:
        minimum = admitted_minimum(job)
        if minimum is not None:
            self.accounts.admit(job.queue, minimum)

    def overused(self, queue: QueueInfo) -> bool:
        return self.accounts.overused(queue.name) and not self._lends

    def allocatable(self, queue: QueueInfo, task: TaskInfo) -> bool:
        return self.accounts.cannot_allocate(queue.name, task.request, lends=self._lends) is None

    def may_hold(self, job: JobInfo, wanted: Vector, uids: Sequence[str]) -> bool:
        return self.accounts.cannot_allocate(job.queue, wanted, lends=self._lends) is None

    def lending(self, lends: bool) -> None:
        self._lends = lends

    def reclaimable(self, reclaimer: TaskInfo, tasks: Sequence[TaskInfo]) -> Sequence[TaskInfo]:
        asked = ProportionReclaiming(self.accounts)
        beyond = [task for task in tasks if asked.may_go(task.job.queue, task.request)]
        return with_gangs(self.session, reclaimer, tasks, beyond)

    def allocated(self, task: TaskInfo) -> None:
        self.accounts.allocate(task.job.queue, task.request)

    def deallocated(self, task: TaskInfo) -> None:
        self.accounts.deallocate(task.job.queue, task.request)

    def gauges(self) -> Mapping[str, Mapping[str, float]]:
        return gauges(self.accounts.gauges)


def proportion(session: Session, option: PluginOption) -> Hooks:
    """Return the hooks of the plugin proportion."""
    plugin = _Proportion(session)
    return Hooks(
        queue_order=plugin.queue_order,
        job_enqueueable=plugin.job_enqueueable,
        job_enqueued=plugin.job_enqueued,
        overused=plugin.overused,
        allocatable=plugin.allocatable,
        may_hold=plugin.may_hold,
        lending=plugin.lending,
        preemptive=plugin.allocatable,
        reclaimable=plugin.reclaimable,
        allocated=plugin.allocated,
        deallocated=plugin.deallocated,
        gauges=plugin.gauges,
    )
