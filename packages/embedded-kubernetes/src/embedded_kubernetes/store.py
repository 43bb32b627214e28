"""What the server knows: every object, in every version that a watch or a chunked list may still ask for.

Pure and synchronous: no sockets, no awaits, no clock or chance of its own (both are injected), so that a seeded
simulation can drive the very code that serves HTTP. Objects are kept as JSON bytes and decoded only to be
changed: bytes are immutable for free, invisible to the garbage collector, and shared as they are by lists,
watches and answers.

Guarantees: one counter of versions for all kinds, as etcd's revision; a write either happens whole, with one
event that every subscriber has been handed when the call returns, or not at all; an index never disagrees
with the objects; a state that is older than the history kept is refused (`Compacted`), never guessed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import islice
from operator import itemgetter
from random import Random
from sys import intern
from typing import Any

import msgspec
import orjson
from msgspec.structs import replace
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


_UUID_BITS = ~((0xF << 76) | (0x3 << 62))
_UUID_FORM = (0x4 << 76) | (0x2 << 62)


class Superseded(Exception):
    """A write that was decided on a version which is no longer the current one."""


def random_uids(bits: Callable[[int], int] | None = None) -> Callable[[], str]:
    """A source of version-4 UUIDs as text, from `bits` (as random.Random.getrandbits; seeded by the system if None).

    UIDs tell objects apart and guard nothing, so a plain generator will do, at a tenth of the cost of uuid.uuid4.
    """
    draw = bits or Random().getrandbits

    def uid() -> str:
        # Version 4 and the RFC 9562 variant stand at fixed places.
        text = f"{draw(128) & _UUID_BITS | _UUID_FORM:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    return uid


class Store:
    """Tables of objects under one version counter.

    `clock` gives seconds since the epoch, `uid` a new UID. `history` is the number of events that each table
    keeps for watches and chunked lists. Lists at version 1 and watches from it see an empty store.
    """

    def __init__(self, *, clock: Callable[[], float], uid: Callable[[], str], history: int = 65_536) -> None:
        self.clock = clock
        self.uid = uid
        self.history = history
        #: The version of the last write. Only `_commit` raises it.
        self.rv = 1
        self.tables: dict[tuple[str, str], Table] = {}
        #: owner UID -> the objects that name it, as (table, key). Kept exact by `_commit`.
        self.dependents: dict[str, set[tuple[tuple[str, str], str]]] = {}
        #: One mapping for all objects with the same labels: 100,000 pods of one job hold one. A cache.
        self._labels: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}

    def add_table(
        self,
        name: tuple[str, str],
        *,
        namespaced: bool,
        field_names: tuple[str, ...],
        extract: Callable[[Object], dict[str, str]],
        indexed: tuple[str, ...] = (),
    ) -> Table:
        """The table of (group, plural), made if it is new."""
        table = self.tables.get(name)
        if table is None:
            table = self.tables[name] = Table(
                namespaced=namespaced,
                field_names=field_names,
                extract=extract,
                indexed=indexed,
                limit=self.history,
            )
        return table

    def insert(self, name: tuple[str, str], obj: Object) -> Record:
        """Store a new object. Raises `Superseded` if the key is taken."""
        record = self._record(self.tables[name], obj)
        self.put(name, record, None)
        return record

    def replace(self, name: tuple[str, str], old: Record, obj: Object) -> Record:
        """Store the next version of `old`. Raises `Superseded` unless `old` is still the current version."""
        record = self._record(self.tables[name], obj)
        self.put(name, record, old)
        return record

    def put(self, name: tuple[str, str], record: Record, old: Record | None) -> None:
        """Store a record that the caller encoded as the next version: of `old`, or of a new object if None.

        Raises `Superseded` unless `old` is still what is stored under the key.
        """
        table = self.tables[name]
        if record.rv != self.rv + 1:
            raise ValueError(f"{record.key}: encoded as version {record.rv}, the next is {self.rv + 1}")
        if old is None:
            if record.key in table.records:
                raise Superseded(record.key)
            table.keys.add(record.key)
            self._commit(name, table, Event(record.rv, "ADDED", record, None))
            return
        if record.key != old.key:
            raise ValueError(f"{old.key}: an object cannot become {record.key}")
        if table.records.get(old.key) is not old:
            raise Superseded(old.key)
        self._commit(name, table, Event(record.rv, "MODIFIED", record, old))

    def remove(self, name: tuple[str, str], old: Record) -> Record:
        """Delete. The answer is the last state under the deletion's version, as the event carries it."""
        table = self.tables[name]
        if table.records.get(old.key) is not old:
            raise Superseded(old.key)
        rv = self.rv + 1
        record = replace(old, rv=rv, data=restamped(old, rv))
        table.keys.remove(old.key)
        self._commit(name, table, Event(rv, "DELETED", record, old))
        return record

    def compact(self, rv: int) -> None:
        """Forget the events up to version `rv`, as an etcd compaction does."""
        for table in self.tables.values():
            history = table.history
            while history and history[0].rv <= rv:
                history.popleft()
            table.compacted = max(table.compacted, min(rv, self.rv))

    def _record(self, table: Table, obj: Object) -> Record:
        rv = self.rv + 1
        metadata: dict[str, Any] = obj["metadata"]
        # The version's place is the first.
        stamped = {"resourceVersion": "", **metadata}
        stamped["resourceVersion"] = str(rv)
        body = {"metadata": stamped, **obj}
        body["metadata"] = stamped
        body.pop("kind", None)
        body.pop("apiVersion", None)
        namespace = metadata.get("namespace", "") if table.namespaced else ""
        name = metadata["name"]
        owners = metadata.get("ownerReferences")
        return Record(
            object_key(namespace, name),
            namespace,
            name,
            metadata["uid"],
            rv,
            orjson.dumps(body),
            self.shared(metadata.get("labels")),
            tuple(map(intern, table.pick(table.extract(obj)))),
            tuple([owner["uid"] for owner in owners]) if owners else (),
            "deletionTimestamp" in metadata,
        )

    def shared(self, labels: dict[str, str] | None) -> dict[str, str]:
        """Labels as a record holds them: one mapping for all records with the same."""
        if not labels:
            return _NO_LABELS
        if len(self._labels) >= 4096:
            self._labels.clear()
        return self._labels.setdefault(tuple(labels.items()), labels)

    def _commit(self, name: tuple[str, str], table: Table, event: Event) -> None:
        self.rv = event.rv
        record, previous = event.record, event.previous
        stays = event.type != "DELETED"
        if stays:
            table.records[record.key] = record
        else:
            del table.records[record.key]
        if table.by_field:
            table.index(record if stays else None, previous)
        owners = record.owners if stays else ()
        owned = previous.owners if previous is not None else ()
        if owners != owned:
            self._own(name, record.key, owned=owned, owners=owners)
        history = table.history
        history.append(event)
        if len(history) > table.limit:
            table.compacted = history.popleft().rv
        for subscriber in table.subscribers:
            subscriber(event)

    def _own(
        self, name: tuple[str, str], key: str, *, owned: tuple[str, ...], owners: tuple[str, ...]
    ) -> None:
        for uid in owned:
            if uid not in owners:
                held = self.dependents.get(uid)
                if held is not None:
                    held.discard((name, key))
                    if not held:
                        del self.dependents[uid]
        for uid in owners:
            self.dependents.setdefault(uid, set()).add((name, key))


_NO_LABELS: dict[str, str] = {}
