"""The book: the usage of all queues, for all schedulers of a process.

A pod counts in its queue and in all ancestors of the queue, from its admission or placement until it is gone. The
limits are those that the objects of the queue and its ancestors declare (`spec.capability`), independent of the
capacity of the nodes: only a full cluster is a reason to add nodes, a full queue is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from ..quotas.queues import QueueInfo
from ..quotas.vector import EMPTY, Total, Vector, add_to
from .entries import KEPT, Entry, QueueHeld, Standing, count_in, declared_limits
from .headroom import NOTHING, Headroom
from .shortfall import Shortfall


class QuotaBook:
    """The entries and sums of all queues. Owner: the cluster's state, like the ledger.

    Invariants: each UID has one entry, in one queue with one standing; entries are in the order of their creation; a
    queue's `used` is the sum of the entries in it and in its children. `fallen` are the queues in which more may fit
    since the set was last cleared. Queues that are their own ancestors count for themselves only, until a parent in
    their cycle changes. A change of a queue costs time linear in the number of queues.
    """

    def __init__(self) -> None:
        self._queues: dict[str, QueueHeld] = {}
        #: Queue -> the queues that name it as their parent.
        self._children: dict[str, set[str]] = {}
        #: Queue in a cycle -> all queues of the cycle, each before its parent; the last one's parent is the first.
        self._cycles: dict[str, list[QueueHeld]] = {}
        self._entries: dict[str, Entry] = {}
        #: The number of queues with an object.
        self._objects = 0
        self.fallen: set[str] = set()

    def __bool__(self) -> bool:
        """Return whether any queue exists; otherwise no limits apply."""
        return self._objects > 0

    # -- queues

    def set_queue(self, info: QueueInfo) -> None:
        """Add or change a queue. If its parent changes, the sums of its former and new ancestors are updated."""
        queue = self._queue(info.name)
        before = queue.info
        if before == info:
            return
        queue.limits = declared_limits(info)
        self.fallen.add(info.name)
        if before is not None and before.lies_in == info.lies_in:
            queue.info = info
            return
        self._objects += before is None
        self._lies_in(queue, info)

    def remove_queue(self, name: str) -> None:
        """Remove a queue; an unknown one is ignored. Its pods keep their entries in case it is created again."""
        queue = self._queues.get(name)
        if queue is None or queue.info is None:
            return
        queue.limits = {}
        self._objects -= 1
        self._lies_in(queue, None)
        self._drop_if_unused(queue)

    def info(self, name: str) -> QueueInfo | None:
        queue = self._queues.get(name)
        return None if queue is None else queue.info

    def is_in_cycle(self, name: str) -> bool:
        """Return whether the queue is its own ancestor."""
        return name in self._cycles

    def _lies_in(self, queue: QueueHeld, now: QueueInfo | None) -> None:
        """Set the object of a queue, whose parent differs from before, and update the sums of its ancestors."""
        before = queue.info
        self._fall_below(queue)
        cycle = self._cycles.get(queue.name, [])
        for each in cycle:
            del self._cycles[each.name]
        self._link(queue, None)
        if before is not None and before.lies_in:
            siblings = self._children[before.lies_in]
            siblings.discard(queue.name)
            if not siblings:
                del self._children[before.lies_in]
        queue.info = now
        if now is not None and now.lies_in:
            self._children.setdefault(now.lies_in, set()).add(queue.name)
        # From below, so that each step changes the sums of one queue; the queue itself is linked last.
        start = cycle.index(queue) if cycle else 0
        for each in (*cycle[start + 1 :], *cycle[:start]):
            self._link(each, self._parent(each))
        if (before is None) is not (now is None):
            for name in self._children.get(queue.name, ()):
                if name != queue.name and name not in self._cycles:
                    self._link(self._queues[name], queue if now is not None else None)
        parent = self._parent(queue)
        # A queue without children is in no cycle.
        above = list(parent.chain) if parent is not None and queue.name in self._children else []
        if above and above[-1] is queue:
            # From above, so that each step changes the sums of one queue.
            for each in reversed(above[:-1]):
                self._link(each, None)
            cycle = [queue, *above[:-1]]
            self._cycles |= {each.name: cycle for each in cycle}
        else:
            self._link(queue, parent)

    def _fall_below(self, queue: QueueHeld) -> None:
        """Note that more may fit in the queue and in those below it."""
        found = {queue.name}
        waiting = [queue.name]
        while waiting:
            for name in self._children.get(waiting.pop(), ()):
                if name not in found:
                    found.add(name)
                    waiting.append(name)
        self.fallen |= found

    def _parent(self, queue: QueueHeld) -> QueueHeld | None:
        """Return the parent that the object names, if its object exists."""
        parent = None if queue.info is None else self._queues.get(queue.info.lies_in)
        return None if parent is None or parent.info is None else parent

    def _link(self, queue: QueueHeld, above: QueueHeld | None) -> None:
        """Count the queue in another parent; None for no parent. This costs nothing if nothing is used."""
        for parent, sign in ((queue.above, -1), (above, 1)):
            for each in () if parent is None or not queue.used else parent.chain:
                count_in(each.used, queue.used, sign)
                self.fallen.add(each.name)
        queue.above = above

    def _drop_if_unused(self, queue: QueueHeld) -> None:
        if queue.info is None and not queue.pods:
            del self._queues[queue.name]

    def _queue(self, name: str) -> QueueHeld:
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = QueueHeld(name)
        return queue

    # -- pods

    def set(self, uid: str, queue: str, vector: Vector, standing: Standing, turn: tuple[Any, ...] = ()) -> None:
        """Set the entry of a pod, or of a promise; it replaces the former one."""
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
        """Stop counting the pod; an unknown UID is ignored."""
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
        """Return the first queue, from `queue` up to the root, that cannot hold `wanted` in addition; None if all can.

        Only resources with a declared limit count, without pods, which Volcano does not limit by queues. An entry of
        the pod `uid` is not counted twice; a pod without an entry may use the promise to its `group`. If more is kept
        than the limit allows, entries that come after the pod do not count. A missing queue can hold nothing.
        """
        return self.headroom().shortfall(queue, wanted, (uid,) if uid else (), group)

    def headroom(self, taken: Mapping[str, Vector] = NOTHING) -> Headroom:
        """Return a headroom, valid until the book changes. `taken` is the result of another one's `taken`."""
        return Headroom(self._queues, self._entries, taken)

    def reaches(self, queue: str, above: Collection[str]) -> bool:
        """Return whether the queue or one of its ancestors is in `above`."""
        at = self._queues.get(queue)
        return any(each.name in above for each in at.chain) if at is not None else queue in above

    def used(self, queue: str) -> Mapping[str, float]:
        """Return the usage of the queue including its children."""
        at = self._queues.get(queue)
        return MappingProxyType(at.used) if at is not None else EMPTY

    def names(self) -> Iterator[str]:
        """Yield the names of all queues that exist or have entries."""
        return iter(self._queues)

    def own(self, queue: str, standing: Standing) -> Mapping[str, float]:
        """Return the sum of the queue's own entries with this standing."""
        at = self._queues.get(queue)
        return MappingProxyType(at.own[standing]) if at is not None else EMPTY

    def kept(self, queue: str) -> Vector:
        """Return the sum of the queue's own entries that are kept for admitted groups and pods without a node."""
        at = self._queues.get(queue)
        total: Total = {}
        if at is not None:
            for standing in KEPT:
                add_to(total, at.own[standing])
        return total

    def could_hold(self, queue: str, wanted: Vector) -> bool:
        """Return whether the queue and its ancestors could hold `wanted` if they were empty."""
        at = self._queues.get(queue)
        return at is not None and all(
            wanted.get(resource, 0) <= limit for each in at.chain for resource, limit in each.limits.items()
        )

    def upwards(self, queue: str) -> list[tuple[QueueInfo, Mapping[str, float]]]:
        """Return the queue and its ancestors, as far as they exist, each with its declared limits."""
        at = self._queues.get(queue)
        chain = () if at is None else at.chain
        return [(each.info, MappingProxyType(each.limits)) for each in chain if each.info is not None]

    def entries(self) -> Iterator[tuple[str, Entry]]:
        return iter(self._entries.items())

    def above_capability(self) -> Iterator[tuple[str, str, float]]:
        """Yield (queue, resource, amount) for each usage beyond the limit.

        Causes are lowered limits, and pods that another scheduler bound.
        """
        for name, queue in self._queues.items():
            for resource, limit in queue.limits.items():
                if queue.used.get(resource, 0) > limit:
                    yield name, resource, queue.used[resource] - limit
