"""The one book of what queues hold, for all schedulers of a process.

A pod counts in its queue and in all of the queue's ancestors, from the moment it is let in until it is gone. What a
queue may hold is what its object and those of its ancestors declare (`spec.capability`), whatever room the nodes have:
a full cluster is not a full queue, and only the first is a reason to add nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from .queues import QueueInfo
from .shortfall import Shortfall
from .vector import COMMON, EMPTY, PODS, Total, Vector, add_to, minus


class Standing(Enum):
    """How far a pod has come. reserved: let past its gate, and waits for room. assumed: a node is chosen, the bind is
    not confirmed. bound: the cluster says that it is on a node."""

    RESERVED = "reserved"
    ASSUMED = "assumed"
    BOUND = "bound"


class Entry(NamedTuple):
    """What a pod counts as. `queue` need not exist."""

    queue: str
    vector: Vector
    standing: Standing


class _Queue:
    """`limits` are the declared ones that are any. Invariant: `used` is the sum of the pods of this queue and of those
    below it; amounts of 0 are left out."""

    __slots__ = ("chain", "info", "limits", "name", "own", "pods", "used")

    def __init__(self, name: str) -> None:
        self.name = name
        #: None while there is no such object; its pods are counted for when there is.
        self.info: QueueInfo | None = None
        self.limits: dict[str, float] = {}
        #: Itself and its ancestors.
        self.chain: tuple[_Queue, ...] = (self,)
        self.used: Total = {}
        #: Its own pods, without those of queues below, by standing.
        self.own: dict[Standing, Total] = {standing: {} for standing in Standing}
        #: How many of its own there are.
        self.pods = 0


def _declared(info: QueueInfo | None) -> dict[str, float]:
    """The limits that an object declares: 0 of cpu or memory is none, and Volcano limits no pods by queues."""
    if info is None or info.capability is None:
        return {}
    return {
        resource: limit
        for resource, limit in info.capability.items()
        if resource != PODS and (limit > 0 or resource not in COMMON)
    }


def _count(total: Total, vector: Vector, sign: int) -> None:
    """Leaves out what comes to nothing, or a queue would keep the name of every resource that it ever held."""
    for resource, amount in vector.items():
        new = total.get(resource, 0) + sign * amount
        if new:
            total[resource] = new
        else:
            total.pop(resource, None)


def _missing(queue: _Queue, wanted: Vector, counted: Vector) -> dict[str, float]:
    """By how much the queue would exceed its limits with `wanted` more, of which `counted` is in what it holds."""
    missing = {}
    for resource, amount in wanted.items():
        limit = queue.limits.get(resource)
        if limit is not None and amount > 0:
            over = queue.used.get(resource, 0) - counted.get(resource, 0) + amount - limit
            if over > 0:
                missing[resource] = over
    return missing


def _covers(reserved: Vector, wanted: Vector) -> bool:
    return all(amount <= reserved.get(resource, 0) for resource, amount in wanted.items())


def _reserved_from(
    pods: Collection[str], queue: _Queue, entries: Mapping[str, Entry], queues: Mapping[str, _Queue]
) -> Vector:
    """What is reserved in a queue for these pods, and for others after the last of them.

    Where more is reserved than there is, since a limit was lowered or pods came without a gate, those for whom it was
    reserved first go first: else all would wait for one another.
    """
    own: Total = {}
    later: Total = {}
    for uid, entry in entries.items():
        if entry.standing is not Standing.RESERVED or queue not in queues[entry.queue].chain:
            continue
        if uid in pods:
            later.clear()
        add_to(own if uid in pods else later, entry.vector)
    add_to(own, later)
    return own


class Headroom:
    """What is left in the queues while nothing changes, for several pods beside one another."""

    def __init__(self, queues: Mapping[str, _Queue], entries: Mapping[str, Entry]) -> None:
        self._queues = queues
        self._entries = entries
        #: By queue, what was taken here, less what it counts in the queue for whom it was taken.
        self._taken: dict[str, Total] = {}

    def copy(self) -> Headroom:
        """One in which as much is left; what is taken of either is not taken of the other."""
        found = Headroom(self._queues, self._entries)
        found._taken = {queue: dict(taken) for queue, taken in self._taken.items()}
        return found

    def shortfall(self, queue: str, wanted: Vector, uids: Iterable[str] = ()) -> Shortfall | None:
        """The first queue, from `queue` up to the root, in which there is not so much left; None if there is in all.
        `uids`: of pods that it is for, whose own room may be reserved there."""
        at = self._queues.get(queue)
        if at is None or at.info is None:
            return Shortfall(queue, {})
        if not at.info.open:
            return Shortfall(queue, {}, at.info.state)
        pods = tuple(uids)
        reserved = self._reserved(queue, pods)
        for each in at.chain:
            taken = self._taken.get(each.name)
            if each.limits:
                more = wanted if taken is None else _both(wanted, taken)
                missing = _missing(each, more, reserved)
                if missing and _covers(reserved, wanted):
                    missing = _missing(each, more, _reserved_from(pods, each, self._entries, self._queues))
                if missing:
                    return Shortfall(each.name, missing)
        return None

    def take(self, queue: str, wanted: Vector, uids: Iterable[str] = ()) -> Shortfall | None:
        """Takes it where there is so much left in the queue and its ancestors; else what is short."""
        short = self.shortfall(queue, wanted, uids)
        if short is None:
            self.count(queue, wanted, uids)
        return short

    def count(self, queue: str, wanted: Vector, uids: Iterable[str] = ()) -> Vector:
        """Takes it, whether or not there is so much left. Returns what that is more than what is reserved for it."""
        more = minus(wanted, self._reserved(queue, uids))
        self._add(queue, more)
        return more

    def give(self, queue: str, amount: Vector) -> None:
        """So much of what the queue holds, or was taken, is free."""
        self._add(queue, {resource: -each for resource, each in amount.items()})

    def _add(self, queue: str, amount: Vector) -> None:
        at = self._queues.get(queue)
        for each in () if at is None else at.chain:
            add_to(self._taken.setdefault(each.name, {}), amount)

    def _reserved(self, queue: str, uids: Iterable[str]) -> Vector:
        total: Total = {}
        for uid in uids:
            entry = self._entries.get(uid)
            if entry is not None and entry.standing is Standing.RESERVED and entry.queue == queue:
                add_to(total, entry.vector)
        return total

    def is_reserved(self, uid: str) -> bool:
        """Whether room is kept for the pod, which has no node."""
        entry = self._entries.get(uid)
        return entry is not None and entry.standing is Standing.RESERVED

    def limits(self, queue: str) -> bool:
        """Whether there is anything that the queue or one above it would refuse."""
        at = self._queues.get(queue)
        return at is None or at.info is None or not at.info.open or any(each.limits for each in at.chain)


def _both(wanted: Vector, taken: Vector) -> Vector:
    """What is taken counts only of what is wanted."""
    return {
        resource: amount + taken.get(resource, 0) if amount > 0 else 0 for resource, amount in wanted.items()
    }


class QuotaBook:
    """Owner: the cluster's state, as of the ledger. Told of each pod that has a queue, and of each queue.

    Invariants: each UID stands in one queue, at one standing; entries are in the order in which they came; a queue's
    `used` is the sum over the entries of it and of the queues below it. `fallen` are the queues in which more may fit
    since it was last cleared.
    """

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
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
        queue.limits = _declared(info)
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

    def _lies_in(self, queue: _Queue, before: QueueInfo | None, now: QueueInfo | None) -> None:
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

    def _with_those_below(self, queue: _Queue) -> list[_Queue]:
        found = {queue.name: queue}
        waiting = [queue.name]
        while waiting:
            for name in self._children.get(waiting.pop(), ()):
                if name not in found:
                    found[name] = self._queues[name]
                    waiting.append(name)
        return list(found.values())

    def _chain(self, queue: _Queue) -> tuple[_Queue, ...]:
        """Up to the root, or to the last one before a parent that is missing, or that is in the chain already."""
        chain = [queue]
        above: _Queue | None = queue
        while above is not None and above.info is not None:
            above = self._queues.get(above.info.lies_in)
            if above is None or above.info is None or above in chain:
                break
            chain.append(above)
        return tuple(chain)

    def _roll_up(self, queue: _Queue, sign: int) -> None:
        for each in queue.chain:
            for total in queue.own.values():
                _count(each.used, total, sign)
            self.fallen.add(each.name)

    def _drop_if_unused(self, queue: _Queue) -> None:
        if queue.info is None and not queue.pods:
            del self._queues[queue.name]

    def _queue(self, name: str) -> _Queue:
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = _Queue(name)
        return queue

    # -- pods

    def set(self, uid: str, queue: str, vector: Vector, standing: Standing) -> None:
        """From now on the pod counts so, whatever it was before."""
        entry = Entry(queue, vector, standing)
        before = self._entries.get(uid)
        if before == entry:
            return
        self._entries[uid] = entry
        if before is not None and before.queue == queue and before.vector == vector:
            own = self._queues[queue].own
            _count(own[before.standing], vector, -1)
            _count(own[standing], vector, 1)
            return
        if before is not None:
            self._uncount(before)
        at = self._queue(queue)
        at.pods += 1
        _count(at.own[standing], vector, 1)
        for each in at.chain:
            _count(each.used, vector, 1)

    def remove(self, uid: str) -> None:
        """The pod counts no more; nothing if it did not."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            self._uncount(entry)

    def _uncount(self, entry: Entry) -> None:
        at = self._queues[entry.queue]
        at.pods -= 1
        _count(at.own[entry.standing], entry.vector, -1)
        for each in at.chain:
            _count(each.used, entry.vector, -1)
            self.fallen.add(each.name)
        self._drop_if_unused(at)

    def entry(self, uid: str) -> Entry | None:
        return self._entries.get(uid)

    # -- questions

    def shortfall(self, queue: str, wanted: Vector, uid: str = "") -> Shortfall | None:
        """The first queue, from `queue` up to the root, that cannot hold `wanted` more; None if all can.

        Of what is wanted, each resource that a queue declares a limit for counts, but pods, which Volcano does not
        limit by queues. The pod `uid` is not counted twice, nor does what was reserved after it count where that is
        reserved. A queue that does not exist takes nothing.
        """
        at = self._queues.get(queue)
        if at is None or at.info is None:
            return Shortfall(queue, {})
        if not at.info.open:
            return Shortfall(queue, {}, at.info.state)
        own = self._entries.get(uid) if uid else None
        for each in at.chain:
            if not each.limits:
                continue
            counted = own.vector if own is not None and each in self._queues[own.queue].chain else EMPTY
            missing = _missing(each, wanted, counted)
            if missing and own is not None and own.standing is Standing.RESERVED and _covers(counted, wanted):
                missing = _missing(each, wanted, _reserved_from((uid,), each, self._entries, self._queues))
            if missing:
                return Shortfall(each.name, missing)
        return None

    def headroom(self) -> Headroom:
        """To be used before anything changes."""
        return Headroom(self._queues, self._entries)

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
