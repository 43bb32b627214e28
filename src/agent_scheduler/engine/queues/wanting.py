"""Pods that report `Unschedulable`: no node is feasible for them, but their queue had room for them.

Autoscalers add nodes for these pods. When the queue of such a pod no longer has room for it, because another pod uses
the rest, the pod must be tried again, so that it reports this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from ..quotas.vector import Total, Vector, add_to
from ..state.podinfo import PodInfo
from .book import QuotaBook
from .entries import Standing
from .room import QueueRoom


class _WantingKind(NamedTuple):
    """Pods with equal requirements for a queue.

    A queue refuses all or none of the pods of a kind without reserved room. Of pods with reserved room, it refuses
    those first that are last in the order.
    """

    queue: str
    wanted: tuple[tuple[str, float], ...]
    reserved: bool


class WantingGang(NamedTuple):
    """Members of a gang that want nodes together.

    `uids` are the members, `wanted` the required room by queue in addition to their reserved room. Without this room,
    none of them can use a node.
    """

    uids: tuple[str, ...]
    wanted: Mapping[str, Vector]


class WantingPods:
    """Owner of the pods that report `Unschedulable`; updated by `QueueUsage`.

    Invariant: a pod is of one kind, by its queue, request and reservation; of none if victims are evicted for it.
    """

    def __init__(self, room: QueueRoom) -> None:
        self._room = room
        self._members = room.members
        #: Increases whenever the usage of a queue increases.
        self.taken = 0
        self._pods: dict[str, PodInfo] = {}
        #: UID -> the members that want nodes together, for members of a gang without its minimum.
        self._together: dict[str, WantingGang] = {}
        self._kind_of: dict[str, _WantingKind] = {}
        self._kinds: dict[_WantingKind, dict[str, None]] = {}

    def set(self, pod: PodInfo, *, nominated: bool, together: WantingGang | None = None) -> None:
        """Add a pod, or replace it.

        A `nominated` pod waits for its victims to leave. No autoscaler adds a node for it, and it keeps its nomination
        even if its queue, with the victims, has no room for it.
        """
        self.drop(pod.uid)
        self._pods[pod.uid] = pod
        if together is not None:
            self._together[pod.uid] = together
        if not nominated:
            self._put(pod)

    def together(self, pods: Sequence[PodInfo], minimum: int) -> WantingGang | None:
        """Return the members that want nodes together; None if the gang has its minimum.

        `minimum` is the number of `pods` that the gang still needs.
        """
        if minimum <= 0:
            return None
        members, keeping = self._members, self._room.keeping
        wanted: dict[str, Total] = {}
        for pod in pods[:minimum]:
            if pod.uid not in keeping:
                add_to(wanted.setdefault(members.queue_of(pod), {}), members.vector(pod))
        return WantingGang(tuple(pod.uid for pod in pods), wanted)

    def drop(self, uid: str) -> None:
        """Remove a pod; an unknown one is ignored."""
        if self._pods.pop(uid, None) is not None:
            self._together.pop(uid, None)
            self._take(uid)

    def look_again(self, uid: str, pod: PodInfo | None = None) -> None:
        """Update the kind of a pod, which is now `pod` if given; an unknown one is ignored."""
        if uid in self._pods:
            if pod is not None:
                self._pods[uid] = pod
            if uid in self._kind_of:
                self._take(uid)
                self._put(self._pods[uid])

    def look_at_all_again(self) -> None:
        """Update the kinds of all pods."""
        for uid in self._pods:
            self.look_again(uid)

    def _put(self, pod: PodInfo) -> None:
        queue = self._members.queue_of(pod)
        wanted = tuple(sorted(self._wanted(pod, queue).items()))
        kind = _WantingKind(queue, wanted, pod.uid in self._room.keeping)
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
        """Return the room that the queue must have: for the gang, or for the pod alone if its room is reserved."""
        together = self._together.get(pod.uid)
        of_all = None
        if together is not None and pod.uid not in self._room.keeping:
            of_all = together.wanted.get(queue)
        return of_all or self._members.vector(pod)

    def _with_others(self, found: list[str]) -> list[str]:
        """Return these pods and those that want nodes together with one of them."""
        gangs = {id(each): each.uids for uid in found if (each := self._together.get(uid)) is not None}
        others = (uid for uids in gangs.values() for uid in uids if uid in self._kind_of)
        return list(dict.fromkeys((*found, *others)))

    # ---- waking

    def refuse(self, uids: Collection[str] | None = None) -> None:
        """Wake pods that report `Unschedulable` although their queue no longer has room for them: all, or of `uids`."""
        if self._room.active:
            self.wake(self.refused(uids))

    def holds_more(self, queue: str) -> None:
        """Wake pods that report `Unschedulable` and lost their room because the usage of `queue` has increased."""
        self.taken += 1
        if self._kinds:
            self.wake(self.refused_since(queue))

    def wake(self, uids: Collection[str]) -> None:
        """Wake pods that report `Unschedulable` without room in their queue."""
        schedulers, events = self._members.batch_schedulers, self._room.events
        of_sessions = [uid for uid in uids if self.scheduler_of(uid) in schedulers]
        others = [uid for uid in uids if uid not in of_sessions] if of_sessions else [*uids]
        if others:
            events.room(others)
        if of_sessions:
            events.not_taken(of_sessions)

    # ---- questions

    def scheduler_of(self, uid: str) -> str:
        """Return the scheduler name of a pod."""
        return self._pods[uid].scheduler_name

    def unreserved(self) -> Iterator[tuple[str, Vector]]:
        """Yield (queue, vector) for each pod or gang without reserved room.

        Pods of the batch scheduler are left out, since sessions report what these want.
        """
        yielded: set[tuple[int, str]] = set()
        for kind, alike in self._kinds.items():
            if kind.reserved or not kind.queue:
                continue
            vector = dict(kind.wanted)
            for uid in alike:
                together = self._together.get(uid)
                if self.scheduler_of(uid) in self._members.batch_schedulers:
                    continue
                if together is None or (id(together), kind.queue) not in yielded:
                    yielded.add((id(together), kind.queue))
                    yield kind.queue, vector

    def queue_of(self, uid: str) -> str:
        """Return the queue of a pod, which had room for it; empty for an unknown pod."""
        kind = self._kind_of.get(uid)
        return "" if kind is None else kind.queue

    def refused(self, uids: Collection[str] | None = None) -> list[str]:
        """Return the pods, all or those of `uids`, whose queue no longer has room for them."""
        members, book, pods = self._members, self._room.book, self._pods
        found = [
            uid
            for uid in (pods if uids is None else [uid for uid in uids if uid in pods])
            if (queue := members.queue_of(pods[uid])) and book.shortfall(queue, self._wanted(pods[uid], queue), uid)
        ]
        return self._with_others(found)

    def refused_since(self, queue: str) -> list[str]:
        """Return the pods whose queue no longer has room for them, after the usage of `queue` has increased.

        The cost depends on the number of kinds and of returned pods, not on the number of pods.
        """
        book = self._room.book
        found: list[str] = []
        limited = [info.name for info, limits in book.upwards(queue) if limits]
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
    """Return whether the queue or an ancestor exceeds its limit of any wanted resource."""
    return any(
        book.used(info.name).get(resource, 0) > limits[resource]
        for info, limits in book.upwards(queue)
        for resource in wanted
        if resource in limits
    )


def _last_of(book: QuotaBook, queue: str, wanted: Mapping[str, float], alike: Mapping[str, None]) -> list[str]:
    """Return the pods of one kind with reserved room that come last in the order and no longer have room."""
    found = []
    reserved = [(entry.turn, uid) for uid, entry in book.entries() if entry.standing is Standing.RESERVED]
    for _, uid in sorted(reserved, reverse=True):
        if uid in alike:
            if book.shortfall(queue, wanted, uid) is None:
                break
            found.append(uid)
    return found
