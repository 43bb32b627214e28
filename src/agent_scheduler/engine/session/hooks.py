"""The extension points of sessions for plugins, as in Volcano's `framework.Session`.

A hook with the value None is not registered. `tiers` decides which hooks are called and how their results are combined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from ..quotas.queues import QueueInfo
from ..quotas.vector import Vector
from .model import JobInfo, SubJobInfo, TaskInfo

#: The votes of plugins.
PERMIT: Final = 1
ABSTAIN: Final = 0
REJECT: Final = -1


class Invalid(Struct, frozen=True):
    """The reason why a job cannot run in its current state (`ValidateResult`)."""

    reason: str
    message: str


#: Returns which of the tasks may be evicted for the first argument; None abstains.
Victims = Callable[[TaskInfo, Sequence[TaskInfo]], Sequence[TaskInfo] | None]


class Hooks(Struct, frozen=True, kw_only=True):
    """The hooks of one plugin in one session.

    Orders of jobs and tasks return keys, in ascending order; a job's key may change while the job is not in a heap.
    Orders of queues compare: a negative result puts the first argument first.
    """

    job_order: Callable[[JobInfo], Any] | None = None
    sub_job_order: Callable[[SubJobInfo], Any] | None = None
    task_order: Callable[[TaskInfo], Any] | None = None
    queue_order: Callable[[QueueInfo, QueueInfo], int] | None = None
    #: Like `queue_order`; the third argument is the preemptor's queue.
    victim_queue_order: Callable[[QueueInfo, QueueInfo, QueueInfo], int] | None = None
    job_valid: Callable[[JobInfo], Invalid | None] | None = None
    job_ready: Callable[[JobInfo], bool] | None = None
    sub_job_ready: Callable[[SubJobInfo], bool] | None = None
    job_pipelined: Callable[[JobInfo], int] | None = None
    sub_job_pipelined: Callable[[SubJobInfo], int] | None = None
    job_starving: Callable[[JobInfo], bool] | None = None
    #: Votes on whether a Pending job may become Inqueue.
    job_enqueueable: Callable[[JobInfo], int] | None = None
    #: Called after the job became Inqueue.
    job_enqueued: Callable[[JobInfo], None] | None = None
    overused: Callable[[QueueInfo], bool] | None = None
    allocatable: Callable[[QueueInfo, TaskInfo], bool] | None = None
    #: Returns whether the queue may hold a task now, that is, before terminating pods have left.
    allocatable_now: Callable[[QueueInfo, TaskInfo], bool] | None = None
    #: Returns whether the queue may hold the vector in addition, for tasks of these UIDs: within its share and limits.
    may_hold: Callable[[JobInfo, Vector, Sequence[str]], bool] | None = None
    #: Called with whether queues may exceed their shares from now on; for plugins that enforce shares.
    lending: Callable[[bool], None] | None = None
    #: Returns whether the queue may reclaim room for the task.
    preemptive: Callable[[QueueInfo, TaskInfo], bool] | None = None
    preemptable: Victims | None = None
    reclaimable: Victims | None = None
    #: Called after a task was allocated or pipelined, or its eviction was undone.
    allocated: Callable[[TaskInfo], None] | None = None
    #: Called after a task was evicted, or its placement was undone.
    deallocated: Callable[[TaskInfo], None] | None = None
    #: Called after a task was passed to the binder.
    committed: Callable[[TaskInfo], None] | None = None
    #: Called before a statement is committed, to end the reservations for the tasks that it has allocated.
    cleanup_reservations: Callable[[Sequence[TaskInfo]], None] | None = None
    #: Called after the actions. Returns when, in seconds of the epoch and after `Session.moment`, the plugin's results
    #: would change without any other change; infinity for never. Plugins that depend on the time implement it.
    turns_at: Callable[[], float] | None = None
    #: Called after the actions, first for each job, then once.
    job_closed: Callable[[JobInfo], None] | None = None
    closed: Callable[[], None] | None = None
    #: Returns queue -> name of the gauge -> value, after the session.
    gauges: Callable[[], Mapping[str, Mapping[str, float]]] | None = None
