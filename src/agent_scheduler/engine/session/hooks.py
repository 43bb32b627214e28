"""What a plugin adds to a session: the extension points of Volcano's `framework.Session`.

A hook that is None is not registered. Which hooks are asked, and how their answers are put together, is `tiers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from ..quotas.queues import QueueInfo
from ..quotas.vector import Vector
from .conf import PluginOption
from .model import Job, SubJob, Task

if TYPE_CHECKING:
    from .session import Session
    from .statement import Statement

#: Votes.
PERMIT: Final = 1
ABSTAIN: Final = 0
REJECT: Final = -1


class Invalid(Struct, frozen=True):
    """Why a job cannot run as it is (`ValidateResult`)."""

    reason: str
    message: str


#: Which of the tasks may be evicted for the first argument; None abstains.
Victims = Callable[[Task, Sequence[Task]], Sequence[Task] | None]


class Hooks(Struct, frozen=True, kw_only=True):
    """Of one plugin in one session.

    Orders of jobs and tasks are keys, what is less comes first; a key may change while its job is not in a queue.
    Orders of queues compare: negative is the first argument.
    """

    job_order: Callable[[Job], Any] | None = None
    sub_job_order: Callable[[SubJob], Any] | None = None
    task_order: Callable[[Task], Any] | None = None
    queue_order: Callable[[QueueInfo, QueueInfo], int] | None = None
    #: The third is the preemptor's queue.
    victim_queue_order: Callable[[QueueInfo, QueueInfo, QueueInfo], int] | None = None
    job_valid: Callable[[Job], Invalid | None] | None = None
    job_ready: Callable[[Job], bool] | None = None
    sub_job_ready: Callable[[SubJob], bool] | None = None
    job_pipelined: Callable[[Job], int] | None = None
    sub_job_pipelined: Callable[[SubJob], int] | None = None
    job_starving: Callable[[Job], bool] | None = None
    #: A vote on whether a Pending job may be Inqueue.
    job_enqueueable: Callable[[Job], int] | None = None
    #: The job is Inqueue now.
    job_enqueued: Callable[[Job], None] | None = None
    overused: Callable[[QueueInfo], bool] | None = None
    allocatable: Callable[[QueueInfo, Task], bool] | None = None
    #: Whether the queue may hold a task at once, and not only when pods that leave are gone.
    allocatable_now: Callable[[QueueInfo, Task], bool] | None = None
    #: Whether the queue may hold so much more, for tasks of these UIDs together: within its share, and its limits.
    may_hold: Callable[[Job, Vector, Sequence[str]], bool] | None = None
    #: Told whether from now on queues may hold more than their shares; of plugins by which they may not.
    lending: Callable[[bool], None] | None = None
    #: Whether the queue may reclaim room for the task.
    preemptive: Callable[[QueueInfo, Task], bool] | None = None
    preemptable: Victims | None = None
    reclaimable: Victims | None = None
    #: A task was given room, or a claim on room that is about to be free; or its eviction was taken back.
    allocated: Callable[[Task], None] | None = None
    #: A task has lost its room: it was evicted, or what had been placed was taken back.
    deallocated: Callable[[Task], None] | None = None
    #: A task was sent to be bound.
    committed: Callable[[Task], None] | None = None
    #: A statement is about to be committed: what was reserved for the tasks that it has allocated is reserved no more.
    cleanup_reservations: Callable[[Statement], None] | None = None
    #: The actions are done: when, in seconds of the epoch and after `Session.moment`, the plugin would answer otherwise
    #: though nothing else had changed; infinity for never. Who asks for the time says so.
    turns_at: Callable[[], float] | None = None
    #: The actions are done: asked about each job, and then for all.
    job_closed: Callable[[Job], None] | None = None
    closed: Callable[[], None] | None = None
    #: Queue -> name of the gauge -> value, after the session.
    gauges: Callable[[], Mapping[str, Mapping[str, float]]] | None = None


class Plugin(Protocol):
    """Makes a plugin's hooks for a session. The plugin itself keeps nothing from one session to the next."""

    def __call__(self, session: Session, option: PluginOption) -> Hooks: ...
