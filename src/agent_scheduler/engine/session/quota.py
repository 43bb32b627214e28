"""What the book of all schedulers says of a queue, asked by a session beside its plugins.

The plugins of a session count the batch scheduler's pods, against what is declared or against the cluster, as Volcano's
do. The book counts all pods, those that were let past a gate and have no node yet among them, and is asked once more at
the commit: what it would refuse there is not tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ..quotas.book import Headroom, QuotaBook
from ..quotas.queues import QueueInfo
from ..quotas.vector import Vector
from .hooks import Hooks
from .model import Task, TaskStatus

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
        self._taken: dict[str, Vector] = {}
        for task in leaving if book else ():
            self.deallocated(task)

    def allocatable(self, queue: QueueInfo, task: Task) -> bool:
        return not self._book or self._headroom.shortfall(queue.name, task.request, (task.uid,)) is None

    def allocatable_now(self, queue: QueueInfo, task: Task) -> bool:
        return self._now is None or self._now.shortfall(queue.name, task.request, (task.uid,)) is None

    def may_hold(self, queue: QueueInfo, wanted: Vector, uids: Sequence[str]) -> bool:
        return not self._book or self._headroom.shortfall(queue.name, wanted, uids) is None

    def allocated(self, task: Task) -> None:
        self._taken[task.uid] = self._headroom.count(task.job.queue, task.request, (task.uid,))
        if self._now is not None and task.status in _PLACED:
            self._now.count(task.job.queue, task.request, (task.uid,))

    def deallocated(self, task: Task) -> None:
        taken = self._taken.pop(task.uid, task.request)
        if task.status is TaskStatus.RELEASING:
            self._now = self._now or self._headroom.copy()
        elif self._now is not None:
            self._now.give(task.job.queue, taken)
        self._headroom.give(task.job.queue, taken)

    def committed(self, task: Task) -> None:
        """The book counts it from now on."""
        taken = self._taken.pop(task.uid, {})
        self._headroom.give(task.job.queue, taken)
        if self._now is not None:
            self._now.give(task.job.queue, taken)


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
