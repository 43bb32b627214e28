"""The one book of what queues hold, for all schedulers of a process.

A pod counts in its queue and in all of the queue's ancestors, from the moment it is let in until it is gone. What a
queue may hold is what its object and those of its ancestors declare (`spec.capability`), whatever room the nodes have:
a full cluster is not a full queue, and only the first is a reason to add nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from .queues import QueueInfo
from .shortfall import Shortfall
from .vector import COMMON, EMPTY, PODS, Total, Vector, add_to, minus, plus, take_from


class Standing(Enum):
    """As what room of a queue is counted; `engine.quotas.standings` has how one follows the other.

    promised: of a group that was let into its queue, what it needs and none of its members holds. reserved: of a pod
    that was let past its queue's gate and has no node. stands_by: of a pod whose stage has not come, which an earlier
    process chose a node for. assumed: a node is chosen, the bind is not confirmed. bound: the cluster says that the pod
    is on a node."""

    PROMISED = "promised"
    RESERVED = "reserved"
    STANDS_BY = "stands_by"
    ASSUMED = "assumed"
    BOUND = "bound"


#: Room that is kept for somebody who has no node.
KEPT: Final = frozenset((Standing.PROMISED, Standing.RESERVED, Standing.STANDS_BY))


class Entry(NamedTuple):
    """What a pod, or the promise to a group, counts as. `queue` need not exist. `turn`: of what is kept, which is
    first where more is kept than there is."""

    queue: str
    vector: Vector
    standing: Standing
    turn: tuple[Any, ...] = ()


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


def _missing(queue: _Queue, wanted: Vector, counted: Vector, taken: Vector = EMPTY) -> dict[str, float]:
    """By how much the queue would exceed its limits with `wanted` more, of which `counted` is in what it holds.
    `taken`: what it is thought to hold besides; less than nothing if it is thought to hold less."""
    missing = {}
    for resource, amount in wanted.items():
        limit = queue.limits.get(resource)
        if limit is not None and amount > 0:
            holds = queue.used.get(resource, 0) + taken.get(resource, 0)
            over = holds - counted.get(resource, 0) + amount - limit
            if over > 0:
                missing[resource] = over
    return missing


def _covers(reserved: Vector, wanted: Vector) -> bool:
    return all(amount <= reserved.get(resource, 0) for resource, amount in wanted.items())


def _kept_from(
    pods: Collection[str], queue: _Queue, entries: Mapping[str, Entry], queues: Mapping[str, _Queue]
) -> Vector:
    """What is kept in a queue for these pods and promises, and for others after the last of them.

    Where more is kept than there is, since a limit was lowered or pods came without a gate, it is for those whose turn
    is first: else all would wait for one another.
    """
    own: Total = {}
    later: Total = {}
    kept = [
        (uid, entry)
        for uid, entry in entries.items()
        if entry.standing in KEPT and queue in queues[entry.queue].chain
    ]
    for uid, entry in sorted(kept, key=lambda each: each[1].turn):
        if uid in pods:
            later.clear()
        add_to(own if uid in pods else later, entry.vector)
    add_to(own, later)
    return own


class Taken(NamedTuple):
    """What a `Headroom` counts for somebody: so much of the queue, and so much of what was promised to a group."""

    queue: str
    amount: Vector
    group: str
    promised: Vector


class Headroom:
    """What is left in the queues while nothing changes, for several pods beside one another."""

    def __init__(self, queues: Mapping[str, _Queue], entries: Mapping[str, Entry]) -> None:
        self._queues = queues
        self._entries = entries
        #: By queue, what was taken here, less what it counts in the queue for whom it was taken.
        self._taken: dict[str, Total] = {}
        #: By group, what was taken here of what is promised to it.
        self._promised: dict[str, Total] = {}

    def copy(self) -> Headroom:
        """One in which as much is left; what is taken of either is not taken of the other."""
        found = Headroom(self._queues, self._entries)
        found._taken = {queue: dict(taken) for queue, taken in self._taken.items()}
        found._promised = {group: dict(taken) for group, taken in self._promised.items()}
        return found

    def shortfall(
        self, queue: str, wanted: Vector, uids: Iterable[str] = (), group: str = ""
    ) -> Shortfall | None:
        """The first queue, from `queue` up to the root, in which there is not so much left; None if there is in all.
        `uids`: of pods that it is for, whose own room may be kept there. `group`: theirs, to which room may be
        promised."""
        at = self._queues.get(queue)
        if at is None or at.info is None:
            return Shortfall(queue, {})
        if not at.info.open:
            return Shortfall(queue, {}, at.info.state)
        pods = tuple(uids)
        kept = self._kept(queue, pods)
        kept = plus(kept, self._of_promise(queue, group, minus(wanted, kept)))
        for each in at.chain:
            taken = self._taken.get(each.name, EMPTY)
            if each.limits:
                missing = _missing(each, wanted, kept, taken)
                if missing and _covers(kept, wanted):
                    whose = (*pods, group) if group in self._entries else pods
                    kept_from = _kept_from(whose, each, self._entries, self._queues)
                    missing = _missing(each, wanted, kept_from, taken)
                if missing:
                    return Shortfall(each.name, missing)
        return None

    def take(self, queue: str, wanted: Vector, uids: Iterable[str] = (), group: str = "") -> Shortfall | None:
        """Takes it where there is so much left in the queue and its ancestors; else what is short."""
        short = self.shortfall(queue, wanted, uids, group)
        if short is None:
            self.count(queue, wanted, uids, group)
        return short

    def count(self, queue: str, wanted: Vector, uids: Iterable[str] = (), group: str = "") -> Taken:
        """Takes it, whether or not there is so much left: first what is kept for the pods, then what is promised to
        their group."""
        more = minus(wanted, self._kept(queue, uids))
        promised = self._of_promise(queue, group, more)
        if promised:
            more = minus(more, promised)
            add_to(self._promised.setdefault(group, {}), promised)
        self._add(queue, more)
        return Taken(queue, more, group, promised)

    def give_back(self, taken: Taken) -> None:
        """What was counted is free again, or the book counts it from now on."""
        self.give(taken.queue, taken.amount)
        if taken.promised:
            take_from(self._promised[taken.group], taken.promised)

    def give(self, queue: str, amount: Vector) -> None:
        """So much of what the queue holds, or was taken, is free."""
        self._add(queue, {resource: -each for resource, each in amount.items()})

    def _add(self, queue: str, amount: Vector) -> None:
        at = self._queues.get(queue)
        for each in () if at is None else at.chain:
            add_to(self._taken.setdefault(each.name, {}), amount)

    def _kept(self, queue: str, uids: Iterable[str]) -> Vector:
        total: Total = {}
        for uid in uids:
            entry = self._entries.get(uid)
            if entry is not None and entry.standing in KEPT and entry.queue == queue:
                add_to(total, entry.vector)
        return total

    def _of_promise(self, queue: str, group: str, wanted: Vector) -> Vector:
        """So much of what is wanted is promised to the group, and not taken here."""
        entry = self._entries.get(group) if group else None
        if entry is None or entry.standing is not Standing.PROMISED or entry.queue != queue:
            return EMPTY
        taken = self._promised.get(group, EMPTY)
        return _part(minus(entry.vector, taken), wanted)

    def is_kept(self, uid: str) -> bool:
        """Whether room is kept for the pod, which has no node."""
        entry = self._entries.get(uid)
        return entry is not None and entry.standing in KEPT

    def limits(self, queue: str) -> bool:
        """Whether there is anything that the queue or one above it would refuse."""
        at = self._queues.get(queue)
        return at is None or at.info is None or not at.info.open or any(each.limits for each in at.chain)


def _part(kept: Vector, wanted: Vector) -> Vector:
    """What of `wanted` is in `kept`."""
    return {
        resource: min(amount, kept[resource])
        for resource, amount in wanted.items()
        if amount > 0 and kept.get(resource, 0) > 0
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

    def shortfall(self, queue: str, wanted: Vector, uid: str = "", group: str = "") -> Shortfall | None:
        """The first queue, from `queue` up to the root, that cannot hold `wanted` more; None if all can.

        Of what is wanted, each resource that a queue declares a limit for counts, but pods, which Volcano does not
        limit by queues. The pod `uid` is not counted twice, and one that is not counted yet has what is promised to its
        `group`; nor does what was kept after it count where that is kept. A queue that does not exist takes nothing.
        """
        at = self._queues.get(queue)
        if at is None or at.info is None:
            return Shortfall(queue, {})
        if not at.info.open:
            return Shortfall(queue, {}, at.info.state)
        own, whose = (self._entries.get(uid), uid) if uid else (None, "")
        if own is None and group:
            own, whose = self._entries.get(group), group
        for each in at.chain:
            if not each.limits:
                continue
            counted = own.vector if own is not None and each in self._queues[own.queue].chain else EMPTY
            if whose == group:
                counted = _part(counted, wanted)
            missing = _missing(each, wanted, counted)
            if missing and own is not None and own.standing in KEPT and _covers(counted, wanted):
                missing = _missing(each, wanted, _kept_from((whose,), each, self._entries, self._queues))
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

    def kept(self, queue: str) -> Vector:
        """What is kept in the queue itself for those who have no node: groups that are let in, and pods."""
        at = self._queues.get(queue)
        total: Total = {}
        if at is not None:
            for standing in KEPT:
                add_to(total, at.own[standing])
        return total

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
