"""The room that is left in queues, for several pods and groups together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ..quotas.vector import EMPTY, Total, Vector, add_to, minus, plus, take_from
from .entries import KEPT, Entry, QueueHeld, Standing, covers, kept_from_others, missing_of, part_of
from .shortfall import Shortfall

NOTHING: Final[Mapping[str, Vector]] = MappingProxyType({})


class HeadroomUse(NamedTuple):
    """The result of `Headroom.count`: an amount of a queue, and a part of the promise to a group."""

    queue: str
    amount: Vector
    group: str
    promised: Vector


class Headroom:
    """The room left in queues for several pods together, valid while the book does not change."""

    def __init__(
        self, queues: Mapping[str, QueueHeld], entries: Mapping[str, Entry], taken: Mapping[str, Vector] = NOTHING
    ) -> None:
        """Create a headroom; `taken` is the result of another one's `taken`."""
        self._queues = queues
        self._entries = entries
        #: Queue -> what was counted here, without what its usage already includes for the same pods.
        self._taken: dict[str, Total] = {queue: dict(amount) for queue, amount in taken.items()}
        #: Group -> the part of its promise that was used here.
        self._promised: dict[str, Total] = {}

    def copy(self) -> Headroom:
        """Return an independent copy."""
        found = Headroom(self._queues, self._entries, self._taken)
        found._promised = {group: dict(taken) for group, taken in self._promised.items()}
        return found

    def taken(self) -> dict[str, Vector]:
        """Return for each queue what was counted here in it and its children, in addition to its usage."""
        return {queue: dict(taken) for queue, taken in self._taken.items()}

    def shortfall(self, queue: str, wanted: Vector, uids: Iterable[str] = (), group: str = "") -> Shortfall | None:
        """Return the first queue, from `queue` up to the root, without room for `wanted`; None if all have room.

        `uids` are the pods that request it, whose own kept room counts for them. `group` is their group, whose promise
        counts for them.
        """
        at = self._queues.get(queue)
        if at is None or at.info is None:
            return Shortfall(queue, {})
        if not at.info.open:
            return Shortfall(queue, {}, at.info.state)
        limited = [each for each in at.chain if each.limits]
        if not limited:
            return None
        pods = tuple(uids)
        kept = self._kept(queue, pods)
        if promised := self._of_promise(queue, group, wanted, kept):
            kept = plus(kept, promised)
        for each in limited:
            taken = self._taken.get(each.name, EMPTY)
            missing = missing_of(each, wanted, kept, taken)
            if missing and covers(kept, wanted):
                whose = (*pods, group) if group in self._entries else pods
                kept_from = kept_from_others(whose, each, self._entries, self._queues)
                missing = missing_of(each, wanted, kept_from, taken)
            if missing:
                return Shortfall(each.name, missing)
        return None

    def take(self, queue: str, wanted: Vector, uids: Iterable[str] = (), group: str = "") -> Shortfall | None:
        """Count `wanted` if the queue and its ancestors have room for it. Returns what is missing, or None."""
        short = self.shortfall(queue, wanted, uids, group)
        if short is None:
            self.count(queue, wanted, uids, group)
        return short

    def count(self, queue: str, wanted: Vector, uids: Iterable[str] = (), group: str = "") -> HeadroomUse:
        """Count `wanted`, even without room: first from the pods' kept room, then from the promise to their group."""
        kept = self._kept(queue, uids)
        promised = self._of_promise(queue, group, wanted, kept)
        more = minus(wanted, kept) if kept else wanted
        if promised:
            more = minus(more, promised)
            add_to(self._promised.setdefault(group, {}), promised)
        self._add(queue, more)
        return HeadroomUse(queue, more, group, promised)

    def give_back(self, taken: HeadroomUse) -> None:
        """Undo `count`, because the room is free again or the book counts it from now on."""
        self.give(taken.queue, taken.amount)
        if taken.promised:
            take_from(self._promised[taken.group], taken.promised)

    def give(self, queue: str, amount: Vector) -> None:
        """Add room: an amount of the queue's usage, or of what was counted here, is free."""
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

    def _of_promise(self, queue: str, group: str, wanted: Vector, kept: Vector) -> Vector:
        """Return the part of `wanted` beyond `kept` that the group's promise covers and that was not used here."""
        entry = self._entries.get(group) if group else None
        if entry is None or entry.standing is not Standing.PROMISED or entry.queue != queue:
            return EMPTY
        taken = self._promised.get(group, EMPTY)
        return part_of(minus(entry.vector, taken), minus(wanted, kept))

    def limits(self, queue: str) -> bool:
        """Return whether the queue or an ancestor has limits or takes no pods."""
        at = self._queues.get(queue)
        return at is None or at.info is None or not at.info.open or any(each.limits for each in at.chain)
