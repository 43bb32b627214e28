"""Pods that wait because their queue is full, and who of them may try again when more fits into it."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from typing import NamedTuple

from .book import QuotaBook
from .headroom import Headroom
from .shortfall import Shortfall
from .turns import Turn
from .vector import Vector

#: By queue, what there has to be room for. A gang whose members name several waits for all of these at once.
Wanted = Mapping[str, Vector]


def take_all(headroom: Headroom, wanted: Wanted) -> Shortfall | None:
    """Takes it where there is so much left in all of these queues; else what the first one is short of."""
    taken: list[str] = []
    for queue, vector in wanted.items():
        short = headroom.take(queue, vector)
        if short is not None:
            for each in taken:
                headroom.give(each, wanted[each])
            return short
        taken.append(queue)
    return None


class _Kind(NamedTuple):
    """What is alike to a full queue: of the pods of one kind all are refused if one is."""

    wanted: tuple[tuple[str, tuple[tuple[str, float], ...]], ...]

    def reaches(self, book: QuotaBook, above: Collection[str]) -> bool:
        return any(book.reaches(queue, above) for queue, _ in self.wanted)


class _Line:
    """The pods of one kind. Those that have left are in the heap until they are its first."""

    __slots__ = ("heap", "turns", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.heap: list[Turn] = []
        self.turns: dict[str, Turn] = {}

    def first(self) -> Turn | None:
        heap = self.heap
        while heap and self.turns.get(heap[0].uid) is not heap[0]:
            heapq.heappop(heap)
        return heap[0] if heap else None


class WaitingPods:
    """Owner of who waits for a queue. Invariant: a pod is in one line, that of its queues and of what it asks for."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._lines: dict[_Kind, _Line] = {}

    def __len__(self) -> int:
        return len(self._kinds)

    def __contains__(self, uid: str) -> bool:
        return uid in self._kinds

    def queue_of(self, uid: str) -> str:
        """The queue that the pod waits for, the first of several; empty if it does not."""
        kind = self._kinds.get(uid)
        return "" if kind is None else kind.wanted[0][0]

    def in_line(self, queue: str) -> list[str]:
        """Those that wait for this queue."""
        return [uid for uid, kind in self._kinds.items() if any(name == queue for name, _ in kind.wanted)]

    def wanted(self, uid: str) -> Wanted:
        """What the pod waits for room for."""
        return self._lines[self._kinds[uid]].wanted

    def add(self, uid: str, wanted: Wanted, own: Turn) -> None:
        """The pod waits for these queues from now on, one at least, as it may have done already. `own`: its turn, in
        which it has this UID."""
        kind = _Kind(tuple((queue, tuple(sorted(each.items()))) for queue, each in wanted.items()))
        if self._kinds.get(uid) == kind and self._lines[kind].turns[uid] == own:
            return
        self.remove(uid)
        self._kinds[uid] = kind
        line = self._lines.get(kind)
        if line is None:
            line = self._lines[kind] = _Line(wanted)
        line.turns[uid] = own
        heapq.heappush(line.heap, own)

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
            other
            for each, line in self._lines.items()
            if each.reaches(book, (queue,))
            for other in line.turns.values()
            if other < own
        )
        return [other.uid for other in sorted(turns)]

    def all(self) -> list[str]:
        """Takes them all out."""
        uids = list(self._kinds)
        self._kinds.clear()
        self._lines.clear()
        return uids

    def would_fit(self, headroom: Headroom) -> bool:
        """Whether there is room for one of those that wait. Takes it from `headroom`."""
        return any(take_all(headroom, line.wanted) is None for line in self._lines.values())

    def fitting(self, book: QuotaBook, fallen: Collection[str]) -> list[tuple[str, str]]:
        """Takes out those that fit beside one another now, in their turn, of queues among `fallen` or below one; each
        with the queue that it waited for.

        Costs what it finds, and the kinds of pods that wait, but not how many do.
        """
        headroom, found = book.headroom(), []
        lines = [
            (first, line, kind.wanted[0][0])
            for kind, line in self._lines.items()
            if kind.reaches(book, fallen) and (first := line.first()) is not None
        ]
        heapq.heapify(lines)
        while lines:
            foremost, line, queue = lines[0]
            if take_all(headroom, line.wanted) is not None:
                heapq.heappop(lines)
                continue
            found.append((foremost.uid, queue))
            self.remove(foremost.uid)
            following = line.first()
            if following is None:
                heapq.heappop(lines)
            else:
                heapq.heapreplace(lines, (following, line, queue))
        return found
