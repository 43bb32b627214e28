"""The extension points of sessions for plugins, as in Volcano's `framework.Session`.

A hook that is missing is not registered. `tiers` decides which hooks are called and how their results are combined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypedDict

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


class Hooks(TypedDict, total=False):
    """The hooks of one plugin in one session.

    Orders of jobs and tasks return keys, in ascending order; a job's key may change while the job is not in a heap.
    Orders of queues compare: a negative result puts the first argument first.
    """

    job_order: Callable[[JobInfo], Any]
    sub_job_order: Callable[[SubJobInfo], Any]
    task_order: Callable[[TaskInfo], Any]
    queue_order: Callable[[QueueInfo, QueueInfo], int]
    #: Like `queue_order`; the third argument is the preemptor's queue.
    victim_queue_order: Callable[[QueueInfo, QueueInfo, QueueInfo], int]
    job_valid: Callable[[JobInfo], Invalid | None]
    job_ready: Callable[[JobInfo], bool]
    sub_job_ready: Callable[[SubJobInfo], bool]
    job_pipelined: Callable[[JobInfo], int]
    sub_job_pipelined: Callable[[SubJobInfo], int]
    job_starving: Callable[[JobInfo], bool]
    #: Votes on whether a Pending job may become Inqueue.
    job_enqueueable: Callable[[JobInfo], int]
    #: Called after the job became Inqueue.
    job_enqueued: Callable[[JobInfo], None]
    overused: Callable[[QueueInfo], bool]
    allocatable: Callable[[QueueInfo, TaskInfo], bool]
    #: Returns whether the queue may hold a task now, that is, before terminating pods have left.
    allocatable_now: Callable[[QueueInfo, TaskInfo], bool]
    #: Returns whether the queue may hold the vector in addition, for tasks of these UIDs: within its share and limits.
    may_hold: Callable[[JobInfo, Vector, Sequence[str]], bool]
    #: Called with whether queues may exceed their shares from now on; for plugins that enforce shares.
    lending: Callable[[bool], None]
    #: Returns whether the queue may reclaim room for the task.
    preemptive: Callable[[QueueInfo, TaskInfo], bool]
    preemptable: Victims
    reclaimable: Victims
    #: Called after a task was allocated or pipelined, or its eviction was undone.
    allocated: Callable[[TaskInfo], None]
    #: Called after a task was evicted, or its placement was undone.
    deallocated: Callable[[TaskInfo], None]
    #: Called after a task was passed to the binder.
    committed: Callable[[TaskInfo], None]
    #: Called before a statement is committed, to end the reservations for the tasks that it has allocated.
    cleanup_reservations: Callable[[Sequence[TaskInfo]], None]
    #: Called after the actions. Returns when, in seconds of the epoch and after `Session.moment`, the plugin's results
    #: would change without any other change; infinity for never. Plugins that depend on the time implement it.
    turns_at: Callable[[], float]
    #: Called after the actions, first for each job, then once.
    job_closed: Callable[[JobInfo], None]
    closed: Callable[[], None]
    #: Returns queue -> name of the gauge -> value, after the session.
    gauges: Callable[[], Mapping[str, Mapping[str, float]]]
