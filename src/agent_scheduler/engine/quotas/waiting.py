"""Pods that wait because their queue is full, and who of them may try again when more fits into it."""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import NamedTuple

from .book import QuotaBook
from .vector import Vector


class _Kind(NamedTuple):
    """What is alike to a full queue: of the pods of one kind all are refused if one is."""

    queue: str
    wanted: tuple[tuple[str, float], ...]


class _Turn(NamedTuple):
    """Less comes first: of higher priority, then who was created first."""

    priority: int
    created: str
    uid: str


class _Line:
    """The pods of one kind. Those that have left are in the heap until they are its first."""

    __slots__ = ("heap", "turns", "vector")

    def __init__(self, vector: Vector) -> None:
        self.vector = vector
        self.heap: list[_Turn] = []
        self.turns: dict[str, _Turn] = {}

    def first(self) -> _Turn | None:
        heap = self.heap
        while heap and self.turns.get(heap[0].uid) is not heap[0]:
            heapq.heappop(heap)
        return heap[0] if heap else None


class WaitingPods:
    """Owner of who waits for a queue. Invariant: a pod is in one line, that of its queue and of what it asks for."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._lines: dict[_Kind, _Line] = {}

    def __len__(self) -> int:
        return len(self._kinds)

    def __contains__(self, uid: str) -> bool:
        return uid in self._kinds

    def queue_of(self, uid: str) -> str:
        """The queue that the pod waits for; empty if it does not."""
        kind = self._kinds.get(uid)
        return "" if kind is None else kind.queue

    def wanted(self, uid: str) -> Vector:
        """What the pod waits for room for."""
        return self._lines[self._kinds[uid]].vector

    def add(self, uid: str, queue: str, vector: Vector, *, priority: int, created: str) -> None:
        """The pod waits for `queue` from now on, as it may have done already."""
        kind, turn = _Kind(queue, tuple(sorted(vector.items()))), _Turn(-priority, created, uid)
        if self._kinds.get(uid) == kind and self._lines[kind].turns[uid] == turn:
            return
        self.remove(uid)
        self._kinds[uid] = kind
        line = self._lines.get(kind)
        if line is None:
            line = self._lines[kind] = _Line(vector)
        line.turns[uid] = turn
        heapq.heappush(line.heap, turn)

    def remove(self, uid: str) -> None:
        """The pod waits no more; nothing if it did not."""
        kind = self._kinds.pop(uid, None)
        if kind is None:
            return
        line = self._lines[kind]
        del line.turns[uid]
        if not line.turns:
            del self._lines[kind]
        elif len(line.heap) > 2 * len(line.turns):
            line.heap = sorted(line.turns.values())

    def before(self, uid: str, book: QuotaBook, queue: str) -> list[str]:
        """Whose turn comes before, of those that wait for `queue` or one below it."""
        kind = self._kinds[uid]
        own = self._lines[kind].turns[uid]
        turns = (
            turn
            for each, line in self._lines.items()
            if book.reaches(each.queue, (queue,))
            for turn in line.turns.values()
            if turn < own
        )
        return [turn.uid for turn in sorted(turns)]

    def all(self) -> list[str]:
        """Takes them all out."""
        uids = list(self._kinds)
        self._kinds.clear()
        self._lines.clear()
        return uids

    def fitting(self, book: QuotaBook, fallen: Collection[str]) -> list[tuple[str, str]]:
        """Takes out those that fit beside one another now, in their turn, of queues among `fallen` or below one; each
        with the queue that it waited for.

        Costs what it finds, and the kinds of pods that wait, but not how many do.
        """
        headroom, found = book.headroom(), []
        lines = [
            (first, line, kind.queue)
            for kind, line in self._lines.items()
            if book.reaches(kind.queue, fallen) and (first := line.first()) is not None
        ]
        heapq.heapify(lines)
        while lines:
            turn, line, queue = lines[0]
            if headroom.take(queue, line.vector) is not None:
                heapq.heappop(lines)
                continue
            found.append((turn.uid, queue))
            self.remove(turn.uid)
            following = line.first()
            if following is None:
                heapq.heappop(lines)
            else:
                heapq.heapreplace(lines, (following, line, queue))
        return found
