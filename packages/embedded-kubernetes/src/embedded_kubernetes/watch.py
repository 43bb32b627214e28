"""Watches: distribution of events, and buffers of unsent lines.

A `Hub` distributes each committed event to a table's watchers at once, in commit order, as an encoded line that all
watchers of a view share. A `Watcher` is a bounded buffer of lines, which the HTTP layer sends at the client's pace.

Guarantees: every watcher receives a gapless sequence of the matching events after its version, with kube-apiserver's
transitions (an object that begins to match is ADDED, one that ceases to match is DELETED in its last matching state).
A watcher that falls too far behind is ended; events are never skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import partial

from .selectors import Selector
from .store import Event, Record, Table, restamped
from .views import View

#: The limit of buffered bytes per client; beyond it, the watch is ended.
BUFFER_LIMIT = 64 * 1024 * 1024


def nobody() -> None:
    """Do nothing: the callback while there is no reader."""


@dataclass(slots=True, eq=False)
class Watcher:
    """One open watch. `wake` is called when an empty buffer gets a line, and when the watch ends.

    Owned by the connection that reads it, which must call `close`. Lines are returned in the order `backlog` (the
    initial state or the replayed history, generated while it is read), then `lines`.
    """

    view: View
    _: KW_ONLY
    namespace: str
    selector: Selector | None
    #: Events up to this version are skipped, because the watch starts after it.
    floor: int
    backlog: InitVar[Iterable[bytes]]
    bookmarks: bool
    limit: int = BUFFER_LIMIT
    lines: list[bytes] = field(default_factory=list)
    size: int = 0
    ended: bool = False
    wake: Callable[[], None] = nobody
    _backlog: Iterator[bytes] | None = field(init=False)
    _close: Callable[[], None] = field(init=False, default=nobody)

    def __post_init__(self, backlog: Iterable[bytes]) -> None:
        self._backlog = iter(backlog)

    @property
    def torn(self) -> bool:
        """Whether the end is a connection reset, which only injected faults cause."""
        return False

    def offer(self, line: bytes) -> None:
        """Add a line to the buffer, or end the watch if it is full."""
        if self.ended:
            return
        size, lines = self.size + len(line), self.lines
        if size > self.limit:
            self.end()
            return
        self.size = size
        lines.append(line)
        if len(lines) == 1:
            self.wake()

    def take(self, room: int) -> list[bytes]:
        """Return lines to send: about `room` bytes, and at least one line if there is any."""
        taken: list[bytes] = []
        if self._backlog is not None:
            for line in self._backlog:
                taken.append(line)
                room -= len(line)
                if room <= 0:
                    return taken
            self._backlog = None
        if self.size <= room:
            taken += self.lines
            self.lines = []
            self.size = 0
            return taken
        count = 0
        for line in self.lines:
            if room <= 0:
                break
            room -= len(line)
            self.size -= len(line)
            count += 1
        taken += self.lines[:count]
        del self.lines[:count]
        return taken

    @property
    def drained(self) -> bool:
        """Whether the watch has ended and all its lines were returned."""
        return self.ended and self._backlog is None and not self.lines

    def bookmark(self, rv: int) -> None:
        """Send a bookmark, if the client requested them."""
        if self.bookmarks and rv > self.floor:
            self.offer(self.view.bookmark(rv, initial_end=False))

    def end(self) -> None:
        """End the watch. Buffered lines can still be taken."""
        if not self.ended:
            self.ended = True
            self._close()
            self.wake()

    def close(self) -> None:
        """Release everything, because the reader is gone."""
        self.wake = nobody
        self.end()
        self.lines = []
        self._backlog = None


class Hub:
    """The watchers of one table.

    Watchers that require one value of an indexed field (such as a kubelet's `spec.nodeName=n`) are found by that
    value, so that thousands of them cost a commit no more than one. Invariant: a watcher that has not ended is in
    exactly one of `_broad` and `_pinned`.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._broad: list[Watcher] = []
        self._pinned: dict[int, dict[str, list[Watcher]]] = {}
        #: Fields by which watchers are indexed: the table's indexed fields, and the name.
        self._pinnable = [*table.by_field, table.field_names.index("metadata.name")]
        table.subscribers.append(self._publish)

    def __len__(self) -> int:
        pinned = sum(len(group) for by_value in self._pinned.values() for group in by_value.values())
        return len(self._broad) + pinned

    def watchers(self) -> list[Watcher]:
        """Return every open watch."""
        found = list(self._broad)
        for by_value in self._pinned.values():
            for group in by_value.values():
                found += group
        return found

    def open(self, watcher: Watcher) -> None:
        """Add a watcher, which receives events until it ends."""
        group = self._broad
        drop: Callable[[], object] = nobody
        if watcher.selector is not None:
            for place in self._pinnable:
                value = watcher.selector.pinned(place)
                if value:
                    by_value = self._pinned.setdefault(place, {})
                    group = by_value.setdefault(value, [])
                    drop = partial(by_value.pop, value, None)
                    break

        def close() -> None:
            group.remove(watcher)
            if not group:
                drop()

        group.append(watcher)
        watcher._close = close

    def _publish(self, event: Event) -> None:
        if self._broad:
            self._hand(list(self._broad), event)
        for place, by_value in self._pinned.items():
            now = event.record.fields[place]
            group = by_value.get(now)
            if group:
                self._hand(list(group), event)
            if event.previous is not None:
                before = event.previous.fields[place]
                if before != now and (group := by_value.get(before)):
                    self._hand(list(group), event)

    def _hand(self, watchers: list[Watcher], event: Event) -> None:
        namespace = event.record.namespace
        view: View | None = None
        lines: dict[str, bytes] = {}
        for watcher in watchers:
            if event.rv <= watcher.floor or (watcher.namespace and watcher.namespace != namespace):
                continue
            type_: str | None = event.type
            if watcher.selector is not None:
                type_ = transition(watcher.selector, event)
                if type_ is None:
                    continue
            if watcher.view is not view:
                view, lines = watcher.view, {}
            line = lines.get(type_)  # type: ignore[arg-type]
            if line is None:
                line = lines[type_] = encode(view, type_, event)  # type: ignore[arg-type,index]
            watcher.offer(line)


def transition(selector: Selector, event: Event) -> str | None:
    """Return the event's type for a client that only sees matching objects; None if it sees nothing."""
    previous = event.previous
    was = previous is not None and selector.matches(previous)
    if event.type == "DELETED":
        return "DELETED" if was else None
    if selector.matches(event.record):
        return "MODIFIED" if was else "ADDED"
    return "DELETED" if was else None


def encode(view: View, type_: str, event: Event) -> bytes:
    """Return the event's line. An object that ceased to match has its last matching state with the event's version."""
    if type_ == "DELETED" and event.type != "DELETED":
        assert event.previous is not None
        return view.line(type_, restamped(event.previous, event.rv))
    return view.line(type_, event.record.data)


def initial(view: View, records: Iterable[Record], *, end: bytes | None) -> Iterator[bytes]:
    """Yield the current state as ADDED events, then `end`."""
    for record in records:
        yield view.line("ADDED", record.data)
    if end is not None:
        yield end


def replay(view: View, events: Iterable[Event], *, namespace: str, selector: Selector | None) -> Iterator[bytes]:
    """Yield past events as one watcher would have received them."""
    for event in events:
        if namespace and event.record.namespace != namespace:
            continue
        type_ = event.type if selector is None else transition(selector, event)
        if type_ is not None:
            yield encode(view, type_, event)
