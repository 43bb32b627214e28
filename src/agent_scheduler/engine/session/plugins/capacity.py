"""capacity: queues with their own limits, deserved shares and guarantees, flat or in a tree.

The rules are those of `pkg/scheduler/plugins/capacity`, the accounts `engine.quotas.capacity`. With the feature
SchedulingGatesQueueAdmission, a task whose queue gate is removed reserves room in the queue until it is placed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...quotas.capacity import CapacityAccounts, CapacityReclaiming
from ...quotas.queues import QueueInfo, QueueTree
from ...quotas.vector import Vector
from ..conf import PluginOption
from ..demand import admitted_minimum, gauges
from ..hooks import PERMIT, REJECT, Hooks
from ..lending import with_gangs
from ..model import JobInfo, TaskInfo, TaskStatus
from ..session import Session
from ..victims import in_victim_order


class _Capacity:
    """The plugin's state in one session. Owner: the session, by its hooks."""

    def __init__(self, session: Session, option: PluginOption) -> None:
        self.session = session
        self.accounts = CapacityAccounts(
            QueueTree(session.queues.values()),
            list(session.queue_demands.values()),
            session.total,
            others=session.view.others,
            hierarchy=option.enabled("enableHierarchy"),
            ancestor_reclaim_level=_level(option),
        )
        if option.enabled("enabledAllocatable"):
            session.queue_fault = self.accounts.fault
        if session.admits_gated:
            for job in session.jobs.values():
                for task in job.by_status[TaskStatus.PENDING].values():
                    if task.gate_managed and not task.gated:
                        self.accounts.reservations.add(job.queue, task.uid, task.request)

    def queue_order(self, left: QueueInfo, right: QueueInfo) -> int:
        return self.accounts.compare(left.name, right.name)

    def victim_queue_order(self, left: QueueInfo, right: QueueInfo, preemptor: QueueInfo) -> int:
        return self.accounts.compare_victims(left.name, right.name, preemptor.name)

    def job_enqueueable(self, job: JobInfo) -> int:
        accounts = self.accounts
        if not self.session.asks_cluster and not self.session.queues[job.queue].open:
            # The account of queues keeps the job's turn until the queue is open.
            return PERMIT
        if not accounts.takes_jobs(job.queue):
            return REJECT
        if job.min_resources is None or not self.session.asks_cluster:
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

    def allocatable(self, queue: QueueInfo, task: TaskInfo) -> bool:
        accounts = self.accounts
        if not accounts.takes_jobs(queue.name):
            return False
        if accounts.cannot_allocate(queue.name, task.request, task.uid) is not None:
            return False
        if self.session.admits_gated and task.gate_managed:
            accounts.reservations.add(queue.name, task.uid, task.request)
        return True

    def may_hold(self, job: JobInfo, wanted: Vector, uids: Sequence[str]) -> bool:
        return self.accounts.takes_jobs(job.queue) and self.accounts.deserves(job.queue, wanted)

    def preemptive(self, queue: QueueInfo, task: TaskInfo) -> bool:
        return self.accounts.may_reclaim(queue.name, task.request)

    def reclaimable(self, reclaimer: TaskInfo, tasks: Sequence[TaskInfo]) -> Sequence[TaskInfo]:
        if self.accounts.fault:
            return []
        asked = CapacityReclaiming(self.accounts, reclaimer.job.queue, reclaimer.request)
        ordered = in_victim_order(self.session, reclaimer, tasks)
        beyond = [task for task in ordered if asked.may_go(task.job.queue, task.request)]
        return with_gangs(self.session, reclaimer, ordered, beyond)

    def allocated(self, task: TaskInfo) -> None:
        self.accounts.allocate(task.job.queue, task.request, task.uid)

    def deallocated(self, task: TaskInfo) -> None:
        """Release the room of a task.

        A task whose placement was undone reserves its room again. An evicted task does not, since its room is needed
        by the task for which it is evicted.
        """
        self.accounts.deallocate(task.job.queue, task.request)
        if self.session.admits_gated and task.gate_managed and task.status is TaskStatus.PENDING:
            self.accounts.reservations.add(task.job.queue, task.uid, task.request)

    def gauges(self) -> Mapping[str, Mapping[str, float]]:
        return gauges(self.accounts.gauges)


def _level(option: PluginOption) -> int:
    """Return the number of levels of ancestors that reclaiming checks; 0 if the argument is negative or no number."""
    try:
        return max(int(option.arguments.get("ancestorReclaimLevel", 0)), 0)
    except (TypeError, ValueError):
        return 0


def capacity(session: Session, option: PluginOption) -> Hooks:
    """Return the hooks of the plugin capacity."""
    plugin = _Capacity(session, option)
    return Hooks(
        queue_order=plugin.queue_order,
        victim_queue_order=plugin.victim_queue_order,
        job_enqueueable=plugin.job_enqueueable,
        job_enqueued=plugin.job_enqueued,
        allocatable=plugin.allocatable,
        may_hold=plugin.may_hold,
        preemptive=plugin.preemptive,
        reclaimable=plugin.reclaimable,
        allocated=plugin.allocated,
        deallocated=plugin.deallocated,
        closed=plugin.accounts.close,
        gauges=plugin.gauges,
    )
