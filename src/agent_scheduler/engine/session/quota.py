"""What the book of all schedulers says of a queue, asked by a session beside its plugins.

The plugins of a session count the batch scheduler's pods, against what is declared or against the cluster, as Volcano's
do. The book counts all pods, those that were let past a gate and have no node yet among them, and is asked once more at
the commit: what it would refuse there is not tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..quotas.book import Headroom, QuotaBook, Taken
from ..quotas.queues import QueueInfo
from ..quotas.vector import Vector
from .hooks import Hooks
from .model import Job, Task

#: Of what stands for it among the plugins.
QUOTA: Final = "quota"


class QueueQuota:
    """Owner: a session. Counts on top of the book what the session has placed and not committed, and leaves out what it
    is about to evict."""

    def __init__(self, book: QuotaBook) -> None:
        self._book = book
        self._headroom: Headroom = book.headroom()
        #: By UID, what was taken for tasks that the book does not count yet.
        self._taken: dict[str, Taken] = {}

    def allocatable(self, queue: QueueInfo, task: Task) -> bool:
        if not self._book:
            return True
        return self._headroom.shortfall(queue.name, task.request, (task.uid,), task.job.uid) is None

    def may_hold(self, job: Job, wanted: Vector, uids: Sequence[str]) -> bool:
        return not self._book or self._headroom.shortfall(job.queue, wanted, uids, job.uid) is None

    def allocated(self, task: Task) -> None:
        job = task.job
        self._taken[task.uid] = self._headroom.count(job.queue, task.request, (task.uid,), job.uid)

    def deallocated(self, task: Task) -> None:
        taken = self._taken.pop(task.uid, None)
        if taken is None:
            self._headroom.give(task.job.queue, task.request)
        else:
            self._headroom.give_back(taken)

    def committed(self, task: Task) -> None:
        """The book counts it from now on."""
        taken = self._taken.pop(task.uid, None)
        if taken is not None:
            self._headroom.give_back(taken)


def hooks_of(quota: QueueQuota) -> Hooks:
    return Hooks(
        allocatable=quota.allocatable,
        may_hold=quota.may_hold,
        allocated=quota.allocated,
        deallocated=quota.deallocated,
        committed=quota.committed,
    )
