"""What is left in the queues, for several pods and groups beside one another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from .entries import KEPT, Entry, QueueHeld, Standing, covers, kept_from_others, missing_of, part_of
from .shortfall import Shortfall
from .vector import EMPTY, Total, Vector, add_to, minus, plus, take_from

NOTHING: Final[Mapping[str, Vector]] = MappingProxyType({})


class Taken(NamedTuple):
    """What a `Headroom` counts for somebody: so much of the queue, and so much of what was promised to a group."""

    queue: str
    amount: Vector
    group: str
    promised: Vector


class Headroom:
    """What is left in the queues while nothing changes, for several pods beside one another."""

    def __init__(
        self,
        queues: Mapping[str, QueueHeld],
        entries: Mapping[str, Entry],
        taken: Mapping[str, Vector] = NOTHING,
    ) -> None:
        """`taken`: as `taken` of another one says."""
        self._queues = queues
        self._entries = entries
        #: By queue, what was taken here, less what it counts in the queue for whom it was taken.
        self._taken: dict[str, Total] = {queue: dict(amount) for queue, amount in taken.items()}
        #: By group, what was taken here of what is promised to it.
        self._promised: dict[str, Total] = {}

    def copy(self) -> Headroom:
        """One in which as much is left; what is taken of either is not taken of the other."""
        found = Headroom(self._queues, self._entries, self._taken)
        found._promised = {group: dict(taken) for group, taken in self._promised.items()}
        return found

    def taken(self) -> dict[str, Vector]:
        """By queue, what was taken here of it and of those below it, of what it does not hold."""
        return {queue: dict(taken) for queue, taken in self._taken.items()}

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
                missing = missing_of(each, wanted, kept, taken)
                if missing and covers(kept, wanted):
                    whose = (*pods, group) if group in self._entries else pods
                    kept_from = kept_from_others(whose, each, self._entries, self._queues)
                    missing = missing_of(each, wanted, kept_from, taken)
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
        return part_of(minus(entry.vector, taken), wanted)

    def limits(self, queue: str) -> bool:
        """Whether there is anything that the queue or one above it would refuse."""
        at = self._queues.get(queue)
        return at is None or at.info is None or not at.info.open or any(each.limits for each in at.chain)
