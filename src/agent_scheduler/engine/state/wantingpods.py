"""Pods that say that they want a node, since their queue had room for them when no node would take them.

Autoscalers add nodes for these. As soon as it is not true any more of one that its queue would take it, as another pod
has what was left, it is to be tried again, to say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..quotas.book import QuotaBook
from ..quotas.entries import Standing
from ..quotas.vector import Total, Vector, add_to
from .podinfo import PodInfo

if TYPE_CHECKING:
    from .queueusage import QueueUsage


class _Kind(NamedTuple):
    """What is alike to a queue. Of those that have no room reserved it refuses all or none; of the others who had it
    reserved last is refused first."""

    queue: str
    wanted: tuple[tuple[str, float], ...]
    reserved: bool


class Together(NamedTuple):
    """Members of a gang that want nodes with one another, by UID; and by queue, for what it is to have room beside what
    is reserved for them. Where it has not, none of them has any use for a node."""

    uids: tuple[str, ...]
    wanted: Mapping[str, Vector]


class WantingPods:
    """Owner of who says so. Told of by `usage`. Invariant: a pod is of one kind, by its queue, what it asks for and
    whether it is reserved, or of none where it waits for others to leave a node for its sake."""

    def __init__(self, usage: QueueUsage) -> None:
        self._usage = usage
        self._pods: dict[str, PodInfo] = {}
        #: Of those of them that are members of a gang without its minimum.
        self._together: dict[str, Together] = {}
        self._kind_of: dict[str, _Kind] = {}
        self._kinds: dict[_Kind, dict[str, None]] = {}

    def set(self, pod: PodInfo, *, nominated: bool, together: Together | None = None) -> None:
        """It says so from now on. `nominated`: it waits for others to leave a node. No autoscaler adds one for it, and
        it keeps its nomination while the queue holds those who leave, and others."""
        self.drop(pod.uid)
        self._pods[pod.uid] = pod
        if together is not None:
            self._together[pod.uid] = together
        if not nominated:
            self._put(pod)

    def together(self, pods: Sequence[PodInfo], minimum: int) -> Together | None:
        """Of members of a gang that lacks `minimum` of these; None if it lacks none."""
        if minimum <= 0:
            return None
        usage = self._usage
        wanted: dict[str, Total] = {}
        for pod in pods[:minimum]:
            if pod.uid not in usage.gated.keeping:
                add_to(wanted.setdefault(usage.queue_of(pod), {}), usage.vector(pod))
        return Together(tuple(pod.uid for pod in pods), wanted)

    def drop(self, uid: str) -> None:
        """It says so no more. Unknown is fine."""
        if self._pods.pop(uid, None) is not None:
            self._together.pop(uid, None)
            self._take(uid)

    def look_again(self, uid: str, pod: PodInfo | None = None) -> None:
        """What it is to a queue may have changed. `pod`: it is this by now. Unknown is fine."""
        if uid in self._pods:
            if pod is not None:
                self._pods[uid] = pod
            if uid in self._kind_of:
                self._take(uid)
                self._put(self._pods[uid])

    def look_at_all_again(self) -> None:
        for uid in self._pods:
            self.look_again(uid)

    def _put(self, pod: PodInfo) -> None:
        usage = self._usage
        queue = usage.queue_of(pod)
        wanted = tuple(sorted(self._wanted(pod, queue).items()))
        kind = _Kind(queue, wanted, pod.uid in usage.gated.keeping)
        self._kind_of[pod.uid] = kind
        self._kinds.setdefault(kind, {})[pod.uid] = None

    def _take(self, uid: str) -> None:
        kind = self._kind_of.pop(uid, None)
        if kind is not None:
            alike = self._kinds[kind]
            del alike[uid]
            if not alike:
                del self._kinds[kind]

    def _wanted(self, pod: PodInfo, queue: str) -> Vector:
        """Of one that has room reserved its own is asked for."""
        together = self._together.get(pod.uid)
        of_all = None
        if together is not None and pod.uid not in self._usage.gated.keeping:
            of_all = together.wanted.get(queue)
        return of_all or self._usage.vector(pod)

    def _with_others(self, found: list[str]) -> list[str]:
        """And those that want nodes with one of these."""
        gangs = {id(each): each.uids for uid in found if (each := self._together.get(uid)) is not None}
        others = (uid for uids in gangs.values() for uid in uids if uid in self._kind_of)
        return list(dict.fromkeys((*found, *others)))

    # ---- questions

    def scheduler_of(self, uid: str) -> str:
        """By which name a pod that says so asks for its scheduler."""
        return self._pods[uid].scheduler_name

    def unreserved(self) -> Iterator[tuple[str, Vector]]:
        """What those want in their queue that have no room reserved, each pod or gang once. Pods of sessions are left
        out: sessions say themselves what these want."""
        told: set[tuple[int, str]] = set()
        for kind, alike in self._kinds.items():
            if kind.reserved or not kind.queue:
                continue
            vector = dict(kind.wanted)
            for uid in alike:
                together = self._together.get(uid)
                if self.scheduler_of(uid) in self._usage.batch_schedulers:
                    continue
                if together is None or (id(together), kind.queue) not in told:
                    told.add((id(together), kind.queue))
                    yield kind.queue, vector

    def queue_of(self, uid: str) -> str:
        """The queue that takes a pod which wants a node, as far as is known; empty for one that wants none."""
        kind = self._kind_of.get(uid)
        return "" if kind is None else kind.queue

    def refused(self) -> list[str]:
        """Those whose queue would not take them any more."""
        usage = self._usage
        found = [
            uid
            for uid, pod in self._pods.items()
            if (queue := usage.queue_of(pod)) and usage.book.shortfall(queue, self._wanted(pod, queue), uid)
        ]
        return self._with_others(found)

    def refused_since(self, queue: str) -> list[str]:
        """Those whose queue would not take them any more, as more is held in `queue` than before.

        Costs what it finds, and the kinds of pods, but not how many there are.
        """
        book = self._usage.book
        found: list[str] = []
        limited = [info.name for info, limits in book.upwards(queue) if limits] if self._kinds else ()
        for kind, alike in self._kinds.items() if limited else ():
            if not book.reaches(kind.queue, limited):
                continue
            wanted = dict(kind.wanted)
            if not kind.reserved:
                if book.shortfall(kind.queue, wanted) is not None:
                    found += alike
            elif _is_above_limits(book, kind.queue, wanted):
                found += _last_of(book, kind.queue, wanted, alike)
        return self._with_others(found)


def _is_above_limits(book: QuotaBook, queue: str, wanted: Mapping[str, float]) -> bool:
    """Whether the queue or one above it holds more than it may of what is wanted."""
    return any(
        book.used(info.name).get(resource, 0) > limits[resource]
        for info, limits in book.upwards(queue)
        for resource in wanted
        if resource in limits
    )


def _last_of(
    book: QuotaBook, queue: str, wanted: Mapping[str, float], alike: Mapping[str, None]
) -> list[str]:
    """Those of pods that are alike, and have room reserved, whose turn is after all that it is enough for."""
    found = []
    reserved = [(entry.turn, uid) for uid, entry in book.entries() if entry.standing is Standing.RESERVED]
    for _, uid in sorted(reserved, reverse=True):
        if uid in alike:
            if book.shortfall(queue, wanted, uid) is None:
                break
            found.append(uid)
    return found
