"""Lists and watches of every kind at random times, compared with the model: the reading half of a state machine.

The machine that inherits it writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, multiple, rule

from embedded_kubernetes.registry import Served
from embedded_kubernetes.requests import Response, Stream
from embedded_kubernetes.store import Store
from embedded_kubernetes.watch import Watcher

from .store_model import NODE_SELECTORS, SELECTORS, Json, Line, Model, Wanted

#: The maximum number of places of a machine.
PLACES = 7
#: A number for a place and a selector of its kind; see `Reads.wanted`.
QUERY = st.integers(0, PLACES * len(NODE_SELECTORS) - 1)
#: How many versions ago; None is now, and a negative number is a version in the future.
BACK = st.sampled_from([None, None, None, *range(-2, 15)])


@dataclass(frozen=True)
class Chunks:
    """A list that is read in pages: kind and version, the number of entries read, and the token of the next page."""

    kind: str
    at: int
    wanted: Wanted
    seen: int
    token: str


@dataclass
class Open:
    """A watch that is read step by step. `prefix` comes before its events, which begin after `floor`.

    `left` is the number of bytes that were unread when it ended.
    """

    kind: str
    wanted: Wanted
    watcher: Watcher
    floor: int
    prefix: list[Line]
    bookmarks: list[Line] = field(default_factory=list)
    got: int = 0
    left: int = 0
    missed_a_bookmark: bool = False

    def __post_init__(self) -> None:
        self.watcher.wake = self._woken

    def _woken(self) -> None:
        if self.watcher.ended:
            self.left = sum(map(len, self.watcher.lines))


class Reads(RuleBasedStateMachine):
    """Reads of a server.

    `store`, `models` and `served` by kind, and `places` (kind and namespace) are set at first.
    """

    chunks = Bundle("chunks")

    store: Store
    models: dict[str, Model]
    served: dict[str, Served]
    places: list[tuple[str, str]]

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[Open] = []

    def ask(self, kind: str, namespace: str, query: str) -> Response | Stream:
        raise NotImplementedError

    def wanted(self, what: int) -> tuple[str, Wanted]:
        selector, where = divmod(what, PLACES)
        kind, namespace = self.places[where % len(self.places)]
        known = NODE_SELECTORS if "spec.nodeName" in self.served[kind].table.field_names else SELECTORS
        return kind, Wanted(namespace, *known[selector % len(known)])

    def version(self, back: int | None) -> int:
        """Return the version that was the newest `back` writes ago; the first is 1."""
        return max(1, self.store.rv - (back or 0))

    def is_refused(self, kind: str, at: int, namespace: str, query: str) -> bool:
        """Return whether the state at `at` cannot be listed, because it is compacted or in the future."""
        expected = 504 if at > self.store.rv else 410 if at < self.models[kind].compacted else 0
        if expected:
            answer = self.ask(kind, namespace, query)
            assert isinstance(answer, Response) and answer.status == expected
            reason = {410: "Expired", 504: "Timeout"}[expected]
            assert orjson.loads(answer.body).items() >= {"code": expected, "reason": reason}.items()
        return bool(expected)

    # -- lists -------------------------------------------------------------------------------------------

    def page(self, kind: str, wanted: Wanted, query: str) -> tuple[list[Json], Json]:
        answer = self.ask(kind, wanted.namespace, query)
        assert isinstance(answer, Response) and answer.status == 200, answer
        body = orjson.loads(answer.body)
        return body["items"], body["metadata"]

    @rule(what=QUERY, back=BACK)
    def list_whole(self, what: int, back: int | None) -> None:
        kind, wanted = self.wanted(what)
        at, query = self.version(back), wanted.query
        if back is not None:
            query += f"&resourceVersion={at}&resourceVersionMatch=Exact"
            if self.is_refused(kind, at, wanted.namespace, query):
                return
        items, meta = self.page(kind, wanted, query)
        assert items == self.models[kind].listed(at, wanted)
        assert meta == {"resourceVersion": str(at)}

    @rule(target=chunks, what=QUERY, back=BACK, limit=st.integers(1, 3))
    def begin_to_list(self, what: int, back: int | None, limit: int) -> Any:
        kind, wanted = self.wanted(what)
        at, query = self.version(back), f"{wanted.query}&limit={limit}"
        if back is not None:
            query += f"&resourceVersion={at}"
            if self.is_refused(kind, at, wanted.namespace, query):
                return multiple()
        return self.read_page(Chunks(kind, at, wanted, 0, ""), query, limit)

    @rule(target=chunks, chunk=consumes(chunks), limit=st.integers(1, 3))
    def go_on_listing(self, chunk: Chunks, limit: int) -> Any:
        query = f"{chunk.wanted.query}&limit={limit}&continue={chunk.token}"
        if self.is_refused(chunk.kind, chunk.at, chunk.wanted.namespace, query):
            return multiple()
        return self.read_page(chunk, query, limit)

    def read_page(self, chunk: Chunks, query: str, limit: int) -> Any:
        """Each page must continue after the last one, in the state in which the first was read."""
        items, meta = self.page(chunk.kind, chunk.wanted, query)
        everything = self.models[chunk.kind].listed(chunk.at, chunk.wanted)
        left = everything[chunk.seen :]
        assert items == left[:limit]
        assert meta.pop("resourceVersion") == str(chunk.at)
        token = meta.pop("continue", "")
        if not chunk.wanted.query:
            assert bool(token) is (len(left) > limit)
            assert meta.pop("remainingItemCount", 0) == max(0, len(left) - limit)
        assert not meta
        if not token:
            assert len(items) == len(left), "the list ended before all was read"
            return multiple()
        return Chunks(chunk.kind, chunk.at, chunk.wanted, chunk.seen + len(items), token)

    # -- watches -----------------------------------------------------------------------------------------

    @rule(
        what=QUERY,
        back=BACK,
        how=st.sampled_from(["version", "version", "any", "initial", "later"]),
        slow=st.booleans(),
    )
    def open_watches(self, what: int, back: int | None, how: str, slow: bool) -> None:
        """Open three at once, of one place and with different selectors, so that they see one event differently."""
        for more in (0, 3 * PLACES, 7 * PLACES):
            kind, wanted = self.wanted((what + more) % (PLACES * len(NODE_SELECTORS)))
            self.open_watch(kind, wanted, back, how, slow)

    def open_watch(self, kind: str, wanted: Wanted, back: int | None, how: str, slow: bool) -> None:
        model, now = self.models[kind], self.store.rv
        floor, prefix = now, []
        query = f"{wanted.query}&watch=1&allowWatchBookmarks=1"
        if how == "version":
            # A version in the future came from a server with more events: those up to it were seen already.
            floor = self.version(back)
            query += f"&resourceVersion={floor}"
        elif how == "later":
            query += "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
        else:
            prefix = [(0, "ADDED", obj) for obj in model.listed(now, wanted)]
        if how == "initial":
            query += "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
            prefix.append((now, "BOOKMARK", {}))
        stream = self.ask(kind, wanted.namespace, query)
        assert isinstance(stream, Stream) and isinstance(stream.watcher, Watcher)
        if floor < model.compacted:
            (line,) = stream.watcher.take(1 << 20)
            assert orjson.loads(line)["type"] == "ERROR" and orjson.loads(line)["object"]["code"] == 410
            assert stream.watcher.drained
            return
        if slow:
            stream.watcher.limit = 500
        if len(self.opened) >= 12:
            self.close(self.opened.pop(0))
        self.opened.append(Open(kind, wanted, stream.watcher, floor, prefix))

    @rule(pick=st.integers(0, 11), act=st.sampled_from([1, 600, 1 << 20, "close", "tell", "tell"]))
    def turn_to_a_watch(self, pick: int, act: int | str) -> None:
        """Read some bytes, close the watch, or record how far it has read, as the adapters do from time to time."""
        if not self.opened:
            return
        opened = self.opened[pick % len(self.opened)]
        if isinstance(act, int):
            self.read(opened, act)
        elif act == "close":
            self.opened.remove(opened)
            self.close(opened)
        else:
            self.bookmark(opened)

    def read(self, opened: Open, room: int) -> None:
        """Compare the lines with the model's events since the last read."""
        events = self.models[opened.kind].watched(opened.floor, opened.wanted)
        # A bookmark follows the events that it covers.
        behind = sorted([*events, *opened.bookmarks], key=lambda line: (line[0], line[1] == "BOOKMARK"))
        expected = [*opened.prefix, *behind]
        lines = opened.watcher.take(room)
        resource = self.served[opened.kind].resource
        for line in lines:
            event = orjson.loads(line)
            rv, type_, obj = expected[opened.got]
            opened.got += 1
            found = event["object"]
            assert event["type"] == type_
            assert (found.pop("kind"), found.pop("apiVersion")) == (resource.kind, resource.api_version)
            if type_ == "BOOKMARK":
                assert found["metadata"]["resourceVersion"] == str(rv)
            else:
                assert found == obj
        if room > 1 << 16:
            assert opened.watcher.take(1) == []
            if opened.watcher.ended:
                self.opened.remove(opened)
                if not opened.missed_a_bookmark:
                    rv, type_, obj = expected[opened.got]
                    named = {"kind": resource.kind, "apiVersion": resource.api_version, **obj}
                    line = orjson.dumps({"type": type_, "object": named}) + b"\n"
                    assert opened.left + len(line) > opened.watcher.limit, "a watch that kept up was ended"
                return
            assert opened.got == len(expected), "a watch that was read to the end lacks events"

    def bookmark(self, opened: Open) -> None:
        ended = opened.watcher.ended
        opened.watcher.bookmark(self.store.rv)
        if opened.watcher.ended:
            opened.missed_a_bookmark = opened.missed_a_bookmark or not ended
        elif self.store.rv > opened.floor:
            opened.bookmarks.append((self.store.rv, "BOOKMARK", {}))

    def close(self, opened: Open) -> None:
        opened.watcher.close()
        assert opened.watcher.drained and opened.watcher.take(1 << 20) == []

    # -- invariants --------------------------------------------------------------------------------------

    def check_tables(self) -> None:
        owners: dict[str, set[Any]] = {}
        for kind, model in self.models.items():
            served = self.served[kind]
            table = served.table
            assert list(table.keys) == sorted(model.now) and table.records.keys() == model.now.keys()
            assert table.compacted == model.compacted
            kept = [change.rv for change in model.changes if change.rv > model.compacted]
            assert [event.rv for event in table.history] == kept
            for index, by_value in table.by_field.items():
                values: dict[str, set[str]] = {}
                for key, record in table.records.items():
                    if record.fields[index]:
                        values.setdefault(record.fields[index], set()).add(key)
                assert by_value == values
            for key, obj in model.now.items():
                for reference in obj["metadata"].get("ownerReferences", ()):
                    owners.setdefault(reference["uid"], set()).add((served.name, key))
            live = sum(each.kind == kind and not each.watcher.ended for each in self.opened)
            assert len(served.hub) == live
        assert self.store.dependents == owners
        assert self.store.rv == max(change.rv for each in self.models.values() for change in each.changes)

    def read_everything(self) -> None:
        for opened in list(self.opened):
            self.read(opened, 1 << 20)
