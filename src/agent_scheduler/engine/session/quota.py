"""Checks the limits of queues in a session by the book of all schedulers, in addition to the session's plugins.

The plugins count the batch scheduler's pods against the declared limits or the cluster, as Volcano's do. The book
counts all pods, including those whose gate was removed and that have no node yet. It is checked again at the commit, so
a session does not try what the book would refuse there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ..queues.book import QuotaBook
from ..queues.headroom import Headroom, HeadroomUse
from ..quotas.queues import QueueInfo
from ..quotas.vector import Vector
from .hooks import Hooks
from .model import JobInfo, TaskInfo, TaskStatus

#: The name of the pseudo-plugin with these hooks.
QUOTA: Final = "quota"


class QueueQuota:
    """Counts the session's uncommitted placements in addition to the book. Owner: a session.

    The usage of terminating pods, and of pods that the session evicts, is future room, as it is on nodes. A pod that
    claims it needs no further evictions.
    """

    def __init__(self, book: QuotaBook, leaving: Iterable[TaskInfo] = ()) -> None:
        self._book = book
        self._headroom: Headroom = book.headroom()
        #: The headroom without future room; None while there is no future room.
        self._now: Headroom | None = None
        #: UID -> what was counted for a task that the book does not count yet.
        self._taken: dict[str, tuple[HeadroomUse, HeadroomUse | None]] = {}
        for task in leaving if book else ():
            self.deallocated(task)

    def allocatable(self, queue: QueueInfo, task: TaskInfo) -> bool:
        if not self._book:
            return True
        return self._headroom.shortfall(queue.name, task.request, (task.uid,), task.job.uid) is None

    def allocatable_now(self, queue: QueueInfo, task: TaskInfo) -> bool:
        now = self._now
        return now is None or now.shortfall(queue.name, task.request, (task.uid,), task.job.uid) is None

    def may_hold(self, job: JobInfo, wanted: Vector, uids: Sequence[str]) -> bool:
        return not self._book or self._headroom.shortfall(job.queue, wanted, uids, job.uid) is None

    def allocated(self, task: TaskInfo) -> None:
        about = (task.job.queue, task.request, (task.uid,), task.job.uid)
        now = self._now.count(*about) if self._now is not None and task.status in _PLACED else None
        self._taken[task.uid] = self._headroom.count(*about), now

    def deallocated(self, task: TaskInfo) -> None:
        taken, now = self._taken.pop(task.uid, (None, None))
        if task.status is TaskStatus.RELEASING:
            self._now = self._now or self._headroom.copy()
        elif self._now is not None and taken is not None:
            # A count from before there was future room is part of both headrooms.
            self._now.give_back(now or taken)
        if taken is None:
            self._headroom.give(task.job.queue, task.request)
        else:
            self._headroom.give_back(taken)

    def committed(self, task: TaskInfo) -> None:
        """Stop counting a task that the book counts from now on."""
        taken, now = self._taken.pop(task.uid, (None, None))
        if taken is not None:
            self._headroom.give_back(taken)
            if self._now is not None:
                self._now.give_back(now or taken)


#: Statuses of tasks that the session has placed.
_PLACED: Final = (TaskStatus.ALLOCATED, TaskStatus.PIPELINED)


def hooks_of(quota: QueueQuota) -> Hooks:
    """Return the hooks of a queue quota."""
    return Hooks(
        allocatable=quota.allocatable,
        allocatable_now=quota.allocatable_now,
        may_hold=quota.may_hold,
        allocated=quota.allocated,
        deallocated=quota.deallocated,
        committed=quota.committed,
    )
