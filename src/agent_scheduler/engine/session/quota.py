"""What the book of all schedulers says of a queue, asked by a session beside its plugins.

The plugins of a session count the batch scheduler's pods, against what is declared or against the cluster, as Volcano's
do. The book counts all pods, those that were let past a gate and have no node yet among them, and is asked once more at
the commit: what it would refuse there is not tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ..quotas.book import QuotaBook
from ..quotas.headroom import Headroom, Taken
from ..quotas.queues import QueueInfo
from ..quotas.vector import Vector
from .hooks import Hooks
from .model import Job, Task, TaskStatus

#: Of what stands for it among the plugins.
QUOTA: Final = "quota"


class QueueQuota:
    """Owner: a session. Counts on top of the book what the session has placed and not committed.

    What pods hold that are leaving, or that it is about to evict, is room to come, as on nodes: nobody else needs to be
    evicted for who claims it.
    """

    def __init__(self, book: QuotaBook, leaving: Iterable[Task] = ()) -> None:
        self._book = book
        self._headroom: Headroom = book.headroom()
        #: The same without the room to come; None while there is none.
        self._now: Headroom | None = None
        #: By UID, what was taken for tasks that the book does not count yet.
        self._taken: dict[str, tuple[Taken, Taken | None]] = {}
        for task in leaving if book else ():
            self.deallocated(task)

    def allocatable(self, queue: QueueInfo, task: Task) -> bool:
        if not self._book:
            return True
        return self._headroom.shortfall(queue.name, task.request, (task.uid,), task.job.uid) is None

    def allocatable_now(self, queue: QueueInfo, task: Task) -> bool:
        now = self._now
        return now is None or now.shortfall(queue.name, task.request, (task.uid,), task.job.uid) is None

    def may_hold(self, job: Job, wanted: Vector, uids: Sequence[str]) -> bool:
        return not self._book or self._headroom.shortfall(job.queue, wanted, uids, job.uid) is None

    def allocated(self, task: Task) -> None:
        about = (task.job.queue, task.request, (task.uid,), task.job.uid)
        now = self._now.count(*about) if self._now is not None and task.status in _PLACED else None
        self._taken[task.uid] = self._headroom.count(*about), now

    def deallocated(self, task: Task) -> None:
        taken, now = self._taken.pop(task.uid, (None, None))
        if task.status is TaskStatus.RELEASING:
            self._now = self._now or self._headroom.copy()
        elif self._now is not None and taken is not None:
            # What was taken before there was room to come was taken there, too.
            self._now.give_back(now or taken)
        if taken is None:
            self._headroom.give(task.job.queue, task.request)
        else:
            self._headroom.give_back(taken)

    def committed(self, task: Task) -> None:
        """The book counts it from now on."""
        taken, now = self._taken.pop(task.uid, (None, None))
        if taken is not None:
            self._headroom.give_back(taken)
            if self._now is not None:
                self._now.give_back(now or taken)


#: In these a task has been given room by the session.
_PLACED: Final = (TaskStatus.ALLOCATED, TaskStatus.PIPELINED)


def hooks_of(quota: QueueQuota) -> Hooks:
    return Hooks(
        allocatable=quota.allocatable,
        allocatable_now=quota.allocatable_now,
        may_hold=quota.may_hold,
        allocated=quota.allocated,
        deallocated=quota.deallocated,
        committed=quota.committed,
    )
