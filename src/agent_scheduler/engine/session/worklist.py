"""Heaps of queues and jobs, in the order in which an action processes them."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

from ..quotas.queues import QueueInfo
from .model import JobInfo
from .tiers import Tiers

if TYPE_CHECKING:
    from .session import Session


class QueueHeap:
    """A heap of queues in the session's order.

    It is a binary heap like Go's `container/heap`, because shares change while queues are in it, and then the result
    of `pop` depends on the algorithm.
    """

    def __init__(self, tiers: Tiers) -> None:
        self._first = tiers.queue_first
        self._items: list[QueueInfo] = []

    def __bool__(self) -> bool:
        return bool(self._items)

    def push(self, queue: QueueInfo) -> None:
        items = self._items
        items.append(queue)
        place = len(items) - 1
        while place:
            parent = (place - 1) // 2
            if not self._first(items[place], items[parent]):
                break
            items[place], items[parent] = items[parent], items[place]
            place = parent

    def pop(self) -> QueueInfo:
        items = self._items
        items[0], items[-1] = items[-1], items[0]
        queue = items.pop()
        place, size = 0, len(items)
        while (child := 2 * place + 1) < size:
            if child + 1 < size and self._first(items[child + 1], items[child]):
                child += 1
            if not self._first(items[child], items[place]):
                break
            items[place], items[child] = items[child], items[place]
            place = child
        return queue


class JobHeap:
    """A heap of the jobs of one queue. A job's key is computed when it is pushed and does not change in the heap."""

    def __init__(self, session: Session) -> None:
        self._begins = session.begins
        self._key_of = session.tiers.job_key
        self._items: list[tuple[tuple[Any, ...], JobInfo]] = []

    def __bool__(self) -> bool:
        return bool(self._items)

    def push(self, job: JobInfo) -> None:
        self._begins(job.group)
        heapq.heappush(self._items, (self._key_of(job), job))

    def pop(self) -> JobInfo:
        job = heapq.heappop(self._items)[1]
        self._begins(job.group)
        return job


class Worklist:
    """Jobs by queue, and a heap of the queues; an action pushes a queue again to continue with it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.queues = QueueHeap(session.tiers)
        self._jobs: dict[str, JobHeap] = {}

    def know(self, queue: str) -> JobHeap:
        """Return the heap of the queue's jobs; add the queue if it is new."""
        jobs = self._jobs.get(queue)
        if jobs is None:
            jobs = self._jobs[queue] = JobHeap(self._session)
            self.queues.push(self._session.queues[queue])
        return jobs

    def add(self, job: JobInfo) -> None:
        self.know(job.queue).push(job)
