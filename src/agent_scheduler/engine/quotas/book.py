"""The one book of what queues hold, for all schedulers of a process.

A pod counts in its queue and in all of the queue's ancestors, from the moment it is let in until it is gone. What a
queue may hold is what its object and those of its ancestors declare (`spec.capability`), whatever room the nodes have:
a full cluster is not a full queue, and only the first is a reason to add nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from .entries import (
    KEPT,
    Entry,
    QueueHeld,
    Standing,
    count_in,
    declared_limits,
)
from .headroom import NOTHING, Headroom
from .queues import QueueInfo
from .shortfall import Shortfall
from .vector import EMPTY, Total, Vector, add_to


class QuotaBook:
    """Owner: the cluster's state, as of the ledger. Told of each pod that has a queue, and of each queue.

    Invariants: each UID stands in one queue, at one standing; entries are in the order in which they came; a queue's
    `used` is the sum over the entries of it and of the queues below it. `fallen` are the queues in which more may fit
    since it was last cleared.
    """

    def __init__(self) -> None:
        self._queues: dict[str, QueueHeld] = {}
        #: Queue -> those that name it as their parent.
        self._children: dict[str, set[str]] = {}
        self._entries: dict[str, Entry] = {}
        #: So many queues have an object.
        self._objects = 0
        self.fallen: set[str] = set()

    def __bool__(self) -> bool:
        """Whether there is any queue. Without one nobody need ask."""
        return self._objects > 0

    # -- queues

    def set_queue(self, info: QueueInfo) -> None:
        """A queue was added or changed. Where it lies elsewhere than before, usage is rolled up anew below it."""
        queue = self._queue(info.name)
        before = queue.info
        if before == info:
            return
        queue.info = info
        queue.limits = declared_limits(info)
        self.fallen.add(info.name)
        if before is None or before.lies_in != info.lies_in:
            self._objects += before is None
            self._lies_in(queue, before, info)

    def remove_queue(self, name: str) -> None:
        """Unknown is fine. Its pods stay known, should it come back."""
        queue = self._queues.get(name)
        if queue is None or queue.info is None:
            return
        before, queue.info, queue.limits = queue.info, None, {}
        self._objects -= 1
        self._lies_in(queue, before, None)
        self._drop_if_unused(queue)

    def info(self, name: str) -> QueueInfo | None:
        queue = self._queues.get(name)
        return None if queue is None else queue.info

    def _lies_in(self, queue: QueueHeld, before: QueueInfo | None, now: QueueInfo | None) -> None:
        if before is not None and before.lies_in:
            siblings = self._children[before.lies_in]
            siblings.discard(queue.name)
            if not siblings:
                del self._children[before.lies_in]
        if now is not None and now.lies_in:
            self._children.setdefault(now.lies_in, set()).add(queue.name)
        below = self._with_those_below(queue)
        for each in below:
            self._roll_up(each, -1)
        for each in below:
            each.chain = self._chain(each)
        for each in below:
            self._roll_up(each, 1)

    def _with_those_below(self, queue: QueueHeld) -> list[QueueHeld]:
        found = {queue.name: queue}
        waiting = [queue.name]
        while waiting:
            for name in self._children.get(waiting.pop(), ()):
                if name not in found:
                    found[name] = self._queues[name]
                    waiting.append(name)
        return list(found.values())

    def _chain(self, queue: QueueHeld) -> tuple[QueueHeld, ...]:
        """Up to the root, or to the last one before a parent that is missing, or that is in the chain already."""
        chain = [queue]
        above: QueueHeld | None = queue
        while above is not None and above.info is not None:
            above = self._queues.get(above.info.lies_in)
            if above is None or above.info is None or above in chain:
                break
            chain.append(above)
        return tuple(chain)

    def _roll_up(self, queue: QueueHeld, sign: int) -> None:
        for each in queue.chain:
            for total in queue.own.values():
                count_in(each.used, total, sign)
            self.fallen.add(each.name)

    def _drop_if_unused(self, queue: QueueHeld) -> None:
        if queue.info is None and not queue.pods:
            del self._queues[queue.name]

    def _queue(self, name: str) -> QueueHeld:
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = QueueHeld(name)
        return queue

    # -- pods

    def set(
        self, uid: str, queue: str, vector: Vector, standing: Standing, turn: tuple[Any, ...] = ()
    ) -> None:
        """From now on the pod counts so, whatever it was before."""
        entry = Entry(queue, vector, standing, turn)
        before = self._entries.get(uid)
        if before == entry:
            return
        self._entries[uid] = entry
        if before is not None and before.queue == queue and before.vector == vector:
            own = self._queues[queue].own
            count_in(own[before.standing], vector, -1)
            count_in(own[standing], vector, 1)
            return
        if before is not None:
            self._uncount(before)
        at = self._queue(queue)
        at.pods += 1
        count_in(at.own[standing], vector, 1)
        for each in at.chain:
            count_in(each.used, vector, 1)

    def remove(self, uid: str) -> None:
        """The pod counts no more; nothing if it did not."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            self._uncount(entry)

    def _uncount(self, entry: Entry) -> None:
        at = self._queues[entry.queue]
        at.pods -= 1
        count_in(at.own[entry.standing], entry.vector, -1)
        for each in at.chain:
            count_in(each.used, entry.vector, -1)
            self.fallen.add(each.name)
        self._drop_if_unused(at)

    def entry(self, uid: str) -> Entry | None:
        return self._entries.get(uid)

    # -- questions

    def is_kept(self, uid: str) -> bool:
        """Return whether room is kept for the pod, which has no node."""
        entry = self._entries.get(uid)
        return entry is not None and entry.standing in KEPT

    def shortfall(self, queue: str, wanted: Vector, uid: str = "", group: str = "") -> Shortfall | None:
        """The first queue, from `queue` up to the root, that cannot hold `wanted` more; None if all can.

        Of what is wanted, each resource that a queue declares a limit for counts, but pods, which Volcano does not
        limit by queues. The pod `uid` is not counted twice, and one that is not counted yet has what is promised to its
        `group`; nor does what was kept after it count where that is kept. A queue that does not exist takes nothing.
        """
        return self.headroom().shortfall(queue, wanted, (uid,) if uid else (), group)

    def headroom(self, taken: Mapping[str, Vector] = NOTHING) -> Headroom:
        """To be used before anything changes. `taken`: as that of another one."""
        return Headroom(self._queues, self._entries, taken)

    def reaches(self, queue: str, above: Collection[str]) -> bool:
        """Whether the queue or an ancestor of it is among these."""
        at = self._queues.get(queue)
        return any(each.name in above for each in at.chain) if at is not None else queue in above

    def used(self, queue: str) -> Mapping[str, float]:
        """What the queue's pods and those of the queues below it count as."""
        at = self._queues.get(queue)
        return MappingProxyType(at.used) if at is not None else EMPTY

    def names(self) -> Iterator[str]:
        """Of all queues that there are, or in which pods count."""
        return iter(self._queues)

    def own(self, queue: str, standing: Standing) -> Mapping[str, float]:
        """What the queue's own pods of that standing count as."""
        at = self._queues.get(queue)
        return MappingProxyType(at.own[standing]) if at is not None else EMPTY

    def kept(self, queue: str) -> Vector:
        """What is kept in the queue itself for those who have no node: groups that are let in, and pods."""
        at = self._queues.get(queue)
        total: Total = {}
        if at is not None:
            for standing in KEPT:
                add_to(total, at.own[standing])
        return total

    def could_hold(self, queue: str, wanted: Vector) -> bool:
        """Whether the queue and all above it would have room for so much if they held nothing."""
        at = self._queues.get(queue)
        return at is not None and all(
            wanted.get(resource, 0) <= limit for each in at.chain for resource, limit in each.limits.items()
        )

    def upwards(self, queue: str) -> list[tuple[QueueInfo, Mapping[str, float]]]:
        """The queue and those that it lies in, as far as there are any, each with the limits that it declares."""
        at = self._queues.get(queue)
        chain = () if at is None else at.chain
        return [(each.info, MappingProxyType(each.limits)) for each in chain if each.info is not None]

    def entries(self) -> Iterator[tuple[str, Entry]]:
        return iter(self._entries.items())

    def above_capability(self) -> Iterator[tuple[str, str, float]]:
        """Queues, resources and by how much more is used than is declared: limits that were lowered, or pods that
        somebody else bound."""
        for name, queue in self._queues.items():
            for resource, limit in queue.limits.items():
                if queue.used.get(resource, 0) > limit:
                    yield name, resource, queue.used[resource] - limit
