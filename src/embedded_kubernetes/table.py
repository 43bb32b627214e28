"""The objects of one kind, as bytes with the few values that selectors and indexes need, and their recent history."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import islice
from operator import itemgetter

import msgspec
from sortedcontainers import SortedList

from .resource import Object

#: How every stored encoding begins; the version follows. What `restamped` relies on.
HEAD = b'{"metadata":{"resourceVersion":"'


class Compacted(Exception):
    """A version so old that its history is gone. `oldest` is the first that can still be asked for."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"history begins at {oldest}")
        self.oldest = oldest


class Record(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One version of one object, with the few values that selectors and indexes need.

    `data` is the JSON object without `kind` and `apiVersion` (they belong to the door it is read through).
    `fields` are the values of the table's `field_names`, in their order. `owners` are owners' UIDs. `deleting`:
    the object has a deletionTimestamp.
    """

    key: str
    namespace: str
    name: str
    uid: str
    rv: int
    data: bytes
    labels: dict[str, str]
    fields: tuple[str, ...]
    owners: tuple[str, ...]
    deleting: bool


class Event(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One committed change. `record` is the state after it; of a deletion, the last state under a new version."""

    rv: int
    type: str
    record: Record
    previous: Record | None


Subscriber = Callable[[Event], None]


def restamped(record: Record, rv: int) -> bytes:
    """The record's encoding as version `rv`. The version's place is fixed, so no object is decoded."""
    return HEAD + str(rv).encode() + record.data[len(HEAD) + len(str(record.rv)) :]


def object_key(namespace: str, name: str) -> str:
    """Keys sort as etcd's do: byte by byte, with the namespace's end compared as `/`."""
    return f"{namespace}/{name}" if namespace else name


class Table:
    """All objects of one kind, in key order, and their recent history.

    Only `Store` writes here. Invariants: `keys` are exactly the keys of `records`, sorted; `by_field[i][v]` are
    exactly the keys of the records whose field `i` is `v`, for `v` not empty; `history` holds, gapless and in
    order, every event with a version above `compacted`.
    """

    def __init__(
        self,
        *,
        namespaced: bool,
        field_names: tuple[str, ...],
        extract: Callable[[Object], dict[str, str]],
        indexed: tuple[str, ...],
        limit: int,
    ) -> None:
        self.namespaced = namespaced
        self.field_names = field_names
        #: The values of `field_names` as a tuple. A getter of one name would give a bare value.
        self.pick: Callable[[dict[str, str]], tuple[str, ...]] = (
            itemgetter(*field_names)
            if len(field_names) > 1
            else lambda values: tuple([values[name] for name in field_names])
        )
        self.extract = extract
        self.limit = limit
        self.records: dict[str, Record] = {}
        self.keys: SortedList[str] = SortedList()
        self.by_field: dict[int, dict[str, set[str]]] = {field_names.index(name): {} for name in indexed}
        self.history: deque[Event] = deque()
        self.compacted = 0
        self.subscribers: list[Subscriber] = []

    def get(self, namespace: str, name: str) -> Record | None:
        return self.records.get(f"{namespace}/{name}" if namespace else name)

    def _span(self, namespace: str, after: str) -> Iterator[str]:
        """Keys of a namespace (all, if empty) from `after` on, exclusive."""
        if not namespace or not self.namespaced:
            return self.keys.irange(after or None, None, (False, True))  # type: ignore[no-any-return]
        low, high = f"{namespace}/", f"{namespace}0"
        return self.keys.irange(max(low, after), high, (False, False))  # type: ignore[no-any-return]

    def scan(self, namespace: str, *, after: str = "", at: int | None = None) -> Iterator[Record]:
        """Records in key order as they were at version `at` (now, if None). Raises `Compacted`.

        An older state is the present one with the events since undone, so that keeping a chunked list
        consistent costs memory nobody has to expire.
        """
        if at is not None and at < self.compacted:
            raise Compacted(self.compacted)
        if at is None or not self.history or self.history[-1].rv <= at:
            return map(self.records.__getitem__, self._span(namespace, after))
        return self._scan_past(namespace, after, self._undo(at))

    def remaining(self, namespace: str, after: str, *, at: int | None = None) -> int:
        """How many objects followed key `after` in a namespace (all, if empty) at version `at`."""
        keys = self.keys
        within = f"{namespace}/" if namespace and self.namespaced else ""
        if within:
            # "0" is the character after "/": the end of the namespace's keys.
            count = keys.bisect_left(f"{namespace}0") - keys.bisect_right(max(within, after))
        else:
            count = len(keys) - keys.bisect_right(after)
        if at is not None:
            for key, past in self._undo(at).items():
                if key > after and key.startswith(within):
                    count += (past is not None) - (key in self.records)
        return int(count)

    def _undo(self, at: int) -> dict[str, Record | None]:
        undone: dict[str, Record | None] = {}
        for event in reversed(self.history):
            if event.rv <= at:
                break
            undone[event.record.key] = event.previous
        return undone

    def _scan_past(self, namespace: str, after: str, undone: dict[str, Record | None]) -> Iterator[Record]:
        records = self.records
        prefix = f"{namespace}/" if namespace and self.namespaced else ""
        gone = sorted(
            key
            for key, past in undone.items()
            if past is not None and key not in records and key > after and key.startswith(prefix)
        )
        for key in merge(self._span(namespace, after), gone):
            past = undone.get(key, records.get(key))
            if past is not None:
                yield past

    def since(self, rv: int) -> list[Event]:
        """Every event after version `rv`, oldest first. Raises `Compacted`."""
        if rv < self.compacted:
            raise Compacted(self.compacted)
        count = 0
        for event in reversed(self.history):
            if event.rv <= rv:
                break
            count += 1
        return list(islice(self.history, len(self.history) - count, None))

    def having(self, field: int, value: str) -> list[Record] | None:
        """The records whose indexed field has this (not empty) value, in key order; None if not indexed."""
        index = self.by_field.get(field)
        if index is None or not value:
            return None
        return [self.records[key] for key in sorted(index.get(value, ()))]

    def index(self, record: Record | None, previous: Record | None) -> None:
        """Bring `by_field` up to date."""
        for field, index in self.by_field.items():
            now = record.fields[field] if record is not None else ""
            before = previous.fields[field] if previous is not None else ""
            if now == before:
                continue
            if before and previous is not None:
                holders = index[before]
                holders.discard(previous.key)
                if not holders:
                    del index[before]
            if now and record is not None:
                index.setdefault(now, set()).add(record.key)
