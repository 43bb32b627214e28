"""Pods that wait because their queue is full, and the selection of those that may try again when there is room."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..quotas.turns import TurnKey
from ..quotas.vector import Vector
from .book import QuotaBook
from .headroom import Headroom
from .shortfall import Shortfall

#: Queue -> the required room. A gang whose members name several queues waits for all of them together.
Wanted = Mapping[str, Vector]


def take_all(headroom: Headroom, wanted: Wanted) -> Shortfall | None:
    """Count `wanted` if all of its queues have room for it. Returns the shortfall of the first one without, or None."""
    taken: list[str] = []
    for queue, vector in wanted.items():
        short = headroom.take(queue, vector)
        if short is not None:
            for each in taken:
                headroom.give(each, wanted[each])
            return short
        taken.append(queue)
    return None


class _LineKey(NamedTuple):
    """The requirements of a pod for queues: if one pod of a kind is refused, all are."""

    wanted: tuple[tuple[str, tuple[tuple[str, float], ...]], ...]

    def reaches(self, book: QuotaBook, above: Collection[str]) -> bool:
        return any(book.reaches(queue, above) for queue, _ in self.wanted)


class _Line:
    """The pods of one kind. Removed pods stay in the heap until they are its first entry."""

    __slots__ = ("heap", "turns", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.heap: list[TurnKey] = []
        self.turns: dict[str, TurnKey] = {}

    def first(self) -> TurnKey | None:
        heap = self.heap
        while heap and self.turns.get(heap[0].uid) is not heap[0]:
            heapq.heappop(heap)
        return heap[0] if heap else None


class QuotaWaitingPods:
    """Owner of the pods that wait for a queue. Invariant: a pod is in one line, that of its kind."""

    def __init__(self) -> None:
        self._kinds: dict[str, _LineKey] = {}
        self._lines: dict[_LineKey, _Line] = {}

    def __len__(self) -> int:
        return len(self._kinds)

    def __contains__(self, uid: str) -> bool:
        return uid in self._kinds

    def queue_of(self, uid: str) -> str:
        """Return the queue that the pod waits for, the first of several; empty if it does not wait."""
        kind = self._kinds.get(uid)
        return "" if kind is None else kind.wanted[0][0]

    def in_line(self, queue: str) -> list[str]:
        """Return the pods that wait for this queue."""
        return [uid for uid, kind in self._kinds.items() if any(name == queue for name, _ in kind.wanted)]

    def wanted(self, uid: str) -> Wanted:
        """Return the room that the pod waits for."""
        return self._lines[self._kinds[uid]].wanted

    def add(self, uid: str, wanted: Wanted, own: TurnKey) -> None:
        """Let a pod wait for these queues, at least one; a waiting pod is updated. `own` is its turn with this UID."""
        kind = _LineKey(tuple((queue, tuple(sorted(each.items()))) for queue, each in wanted.items()))
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
        """Remove a pod; an unknown one is ignored."""
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
        """Return the pods with an earlier turn, of those that wait for `queue` or one of its children."""
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
        """Remove and return all pods."""
        uids = list(self._kinds)
        self._kinds.clear()
        self._lines.clear()
        return uids

    def would_fit(self, headroom: Headroom) -> bool:
        """Return whether there is room for any waiting pod; if so, count it in `headroom`."""
        return any(take_all(headroom, line.wanted) is None for line in self._lines.values())

    def fitting(self, book: QuotaBook, fallen: Collection[str]) -> list[tuple[str, str]]:
        """Remove and return the pods that fit together now, in the order of turns, each with the queue it waited for.

        Only pods of the queues in `fallen` and of their children are considered. The cost depends on the number of
        kinds and of returned pods, not on the number of waiting pods.
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
