"""The store: all objects, and their recent versions for watches and chunked lists.

Pure and synchronous: no sockets, no awaits; clock and randomness are injected. A seeded simulation therefore runs the
same code that serves HTTP. Objects are kept as JSON bytes and decoded only to be changed: bytes are immutable,
invisible to the garbage collector, and shared by lists, watches and responses.

Guarantees: there is one version counter for all kinds, like etcd's revision. A write is atomic, and every subscriber
has received its single event when the call returns. Indexes always match the objects. A version older than the kept
history is rejected (`Compacted`).
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
from msgspec.structs import replace
from sortedcontainers import SortedList

from . import nesting
from .errors import ApiError
from .resource import Object

#: The limit of an object in bytes: etcd's default limit of a request.
MOST_BYTES = 1536 * 1024
#: The start of every stored encoding; the version follows. `restamped` depends on it.
HEAD = b'{"metadata":{"resourceVersion":"'


class Compacted(Exception):
    """The history of a version is gone. `oldest` is the oldest available version."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"history begins at {oldest}")
        self.oldest = oldest


class Record(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One version of one object, with the values that selectors and indexes need.

    `data` is the JSON object without `kind` and `apiVersion`, which depend on the served version. `fields` are the
    values of the table's `field_names`, in order. `owners` are UIDs of owners. `deleting`: the object has a
    deletionTimestamp.
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
    """A committed change. `record` is the new state; for a deletion, the last state with a new version."""

    rv: int
    type: str
    record: Record
    previous: Record | None


Subscriber = Callable[[Event], None]


def restamped(record: Record, rv: int) -> bytes:
    """Return the record's encoding as version `rv`. The version is at a fixed offset, so nothing is decoded."""
    return HEAD + str(rv).encode() + record.data[len(HEAD) + len(str(record.rv)) :]


def object_key(namespace: str, name: str) -> str:
    """Return the key of an object. Keys sort as in etcd: bytewise, with `/` after the namespace."""
    return f"{namespace}/{name}" if namespace else name


class Table:
    """All objects of one kind in key order, and their recent history.

    Only `Store` writes to it. Invariants: `keys` are the sorted keys of `records`; `by_field[i][v]` are the keys of
    the records whose field `i` is `v`, for non-empty `v`; `history` has every event with a version above `compacted`,
    in order.
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
        #: Returns the values of `field_names` as a tuple, which an itemgetter for a single name would not.
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
        """Return the keys of a namespace (all, if empty) after `after`."""
        if not namespace or not self.namespaced:
            return self.keys.irange(after or None, None, (False, True))  # type: ignore[no-any-return]
        low, high = f"{namespace}/", f"{namespace}0"
        return self.keys.irange(max(low, after), high, (False, False))  # type: ignore[no-any-return]

    def scan(self, namespace: str, *, after: str = "", at: int | None = None) -> Iterator[Record]:
        """Yield records in key order as of version `at`; the current ones if None. Raises `Compacted`.

        An older state is the current one with later events undone, so that a consistent chunked list needs no
        snapshot.
        """
        if at is not None and at < self.compacted:
            raise Compacted(self.compacted)
        if at is None or not self.history or self.history[-1].rv <= at:
            return map(self.records.__getitem__, self._span(namespace, after))
        return self._scan_past(namespace, after, self._undo(at))

    def remaining(self, namespace: str, after: str, *, at: int | None = None) -> int:
        """Return the number of objects after key `after` in a namespace (all, if empty) as of version `at`."""
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
        """Return every event after version `rv`, oldest first. Raises `Compacted`."""
        if rv < self.compacted:
            raise Compacted(self.compacted)
        count = 0
        for event in reversed(self.history):
            if event.rv <= rv:
                break
            count += 1
        return list(islice(self.history, len(self.history) - count, None))

    def having(self, field: int, value: str) -> list[Record] | None:
        """Return the records with this non-empty value of an indexed field, in key order; None if it is not indexed."""
        index = self.by_field.get(field)
        if index is None or not value:
            return None
        return [self.records[key] for key in sorted(index.get(value, ()))]

    def index(self, record: Record | None, previous: Record | None) -> None:
        """Update `by_field`."""
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
    """The write is based on an outdated version."""


def random_uids(bits: Callable[[int], int] | None = None) -> Callable[[], str]:
    """Return a generator of version-4 UUIDs as text. `bits` is a random.Random.getrandbits; by default system-seeded.

    UIDs only identify objects and are no secrets, so a plain generator suffices, at a tenth of the cost of
    uuid.uuid4.
    """
    draw = bits or Random().getrandbits

    def uid() -> str:
        # The version 4 and the variant of RFC 9562 are at fixed positions.
        text = f"{draw(128) & _UUID_BITS | _UUID_FORM:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    return uid


class Store:
    """Tables of objects with one version counter.

    `clock` returns seconds since 1970, `uid` a new UID. `history` is the number of events that each table keeps for
    watches and chunked lists. Version 1 is the empty store.
    """

    def __init__(self, *, clock: Callable[[], float], uid: Callable[[], str], history: int = 65_536) -> None:
        self.clock = clock
        self.uid = uid
        self.history = history
        #: The version of the last write. Only `_commit` increments it.
        self.rv = 1
        self.tables: dict[tuple[str, str], Table] = {}
        #: The dependents of an owner's UID, as (table, key). Updated by `_commit`.
        self.dependents: dict[str, set[tuple[tuple[str, str], str]]] = {}
        #: One mapping for all objects with equal labels, such as the pods of a job. A cache.
        self._labels: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        #: Called with each change before it is made. If it raises, nothing is changed.
        self.journal: Callable[[tuple[str, str], Event], None] | None = None

    def add_table(
        self,
        name: tuple[str, str],
        *,
        namespaced: bool,
        field_names: tuple[str, ...],
        extract: Callable[[Object], dict[str, str]],
        indexed: tuple[str, ...] = (),
    ) -> Table:
        """Return the table of (group, plural), created if it is missing."""
        table = self.tables.get(name)
        if table is None:
            table = self.tables[name] = Table(
                namespaced=namespaced, field_names=field_names, extract=extract, indexed=indexed, limit=self.history
            )
        return table

    def insert(self, name: tuple[str, str], obj: Object) -> Record:
        """Store a new object. Raises `Superseded` if the key is taken."""
        record = self._record(self.tables[name], obj)
        self.put(name, record, None)
        return record

    def replace(self, name: tuple[str, str], old: Record, obj: Object) -> Record:
        """Store the next version of `old`. Raises `Superseded` if `old` is no longer the current version."""
        record = self._record(self.tables[name], obj)
        self.put(name, record, old)
        return record

    def put(self, name: tuple[str, str], record: Record, old: Record | None) -> None:
        """Store a record that the caller encoded as the next version of `old`, or of a new object if None.

        Raises `Superseded` if `old` is no longer the current version, and 500 for more than MOST_BYTES.
        """
        table = self.tables[name]
        if len(record.data) > MOST_BYTES:
            raise ApiError(500, "", "etcdserver: request is too large")
        if record.rv != self.rv + 1:
            raise ValueError(f"{record.key}: encoded as version {record.rv}, the next is {self.rv + 1}")
        if old is None:
            if record.key in table.records:
                raise Superseded(record.key)
            self._commit(name, table, Event(record.rv, "ADDED", record, None))
            return
        if record.key != old.key:
            raise ValueError(f"{old.key}: an object cannot become {record.key}")
        if table.records.get(old.key) is not old:
            raise Superseded(old.key)
        self._commit(name, table, Event(record.rv, "MODIFIED", record, old))

    def remove(self, name: tuple[str, str], old: Record) -> Record:
        """Delete an object; return its last state with the version of the deletion, as in the event."""
        table = self.tables[name]
        if table.records.get(old.key) is not old:
            raise Superseded(old.key)
        rv = self.rv + 1
        record = replace(old, rv=rv, data=restamped(old, rv))
        self._commit(name, table, Event(rv, "DELETED", record, old))
        return record

    def restore(self, name: tuple[str, str], rv: int, data: bytes) -> None:
        """Store an object as it was encoded as version `rv`. `settle` follows the last one."""
        table = self.tables[name]
        record = self._encoded(table, nesting.loads(data), rv, data)
        self._commit(name, table, Event(rv, "ADDED", record, None))

    def settle(self, rv: int) -> None:
        """Set the version after a restoration, with a history that begins there."""
        self.rv = rv
        self.compact(rv)
        for table in self.tables.values():
            table.history.clear()

    def compact(self, rv: int) -> None:
        """Drop the events up to version `rv`, like an etcd compaction."""
        for table in self.tables.values():
            history = table.history
            while history and history[0].rv <= rv:
                history.popleft()
            table.compacted = max(table.compacted, min(rv, self.rv))

    def _record(self, table: Table, obj: Object) -> Record:
        rv = self.rv + 1
        metadata: dict[str, Any] = obj["metadata"]
        # The version is the first field.
        stamped = {"resourceVersion": "", **metadata}
        stamped["resourceVersion"] = str(rv)
        body = {"metadata": stamped, **obj}
        body["metadata"] = stamped
        body.pop("kind", None)
        body.pop("apiVersion", None)
        return self._encoded(table, obj, rv, nesting.dumps(body))

    def _encoded(self, table: Table, obj: Object, rv: int, data: bytes) -> Record:
        """Return the record of an object with its encoding."""
        metadata: dict[str, Any] = obj["metadata"]
        namespace = metadata.get("namespace", "") if table.namespaced else ""
        name = metadata["name"]
        owners = metadata.get("ownerReferences")
        return Record(
            object_key(namespace, name),
            namespace,
            name,
            metadata["uid"],
            rv,
            data,
            self.shared(metadata.get("labels")),
            tuple(map(intern, table.pick(table.extract(obj)))),
            tuple([owner["uid"] for owner in owners]) if owners else (),
            "deletionTimestamp" in metadata,
        )

    def shared(self, labels: dict[str, str] | None) -> dict[str, str]:
        """Return labels in the form of records: one mapping for all with equal labels."""
        if not labels:
            return _NO_LABELS
        if len(self._labels) >= 4096:
            self._labels.clear()
        return self._labels.setdefault(tuple(labels.items()), labels)

    def _commit(self, name: tuple[str, str], table: Table, event: Event) -> None:
        if self.journal is not None:
            self.journal(name, event)
        self.rv = event.rv
        record, previous = event.record, event.previous
        stays = event.type != "DELETED"
        if stays:
            if previous is None:
                table.keys.add(record.key)
            table.records[record.key] = record
        else:
            table.keys.remove(record.key)
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

    def _own(self, name: tuple[str, str], key: str, *, owned: tuple[str, ...], owners: tuple[str, ...]) -> None:
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
