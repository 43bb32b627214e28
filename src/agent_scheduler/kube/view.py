"""What a reflector has handed over of a collection, and what a list or a watch changes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw

from agent_scheduler.kube.changes import ADDED, DELETED, MODIFIED, Change
from agent_scheduler.kube.errors import Failure, FailureClass, Status, StoreWentBack, classify_status
from agent_scheduler.kube.paging import SLICE
from agent_scheduler.kube.watch_events import (
    Decode,
    EventType,
    Identity,
    Object,
    ReadEvent,
    event_reader,
    identify,
    is_older,
    open_event_slowly,
)
from agent_scheduler.telemetry.logs import get_logger

T = TypeVar("T", bound=Object)

_log = get_logger(__name__)
_decode_status = msgspec.json.Decoder(Status).decode
#: How many malformed objects are remembered, so that each is reported once.
_REPORTED = 1024


class View(Generic[T]):
    """Arguments as of `Reflector`.

    `known` holds by UID the object last handed over; it exists to find what a list no longer has and to refuse older
    versions. `version` is the newest version seen of the whole collection: where the next watch begins. It never goes
    back.
    """

    def __init__(
        self,
        path: str,
        decode: Decode[T],
        read_event: ReadEvent[T] | None,
        *,
        count: Callable[[str], None],
        on_malformed: Callable[[bytes, Exception], None],
    ) -> None:
        self._path = path
        self._decode = decode
        self._read_event = read_event or event_reader(decode)
        self._count = count
        self._on_malformed = on_malformed
        self.known: dict[str, T] = {}
        self.version = ""
        #: Whether the server sends bookmarks.
        self.marks = False
        self._reported: dict[Identity, None] = {}

    def take(self, uids: list[str]) -> Iterable[T]:
        """The objects of these UIDs, which are known no longer."""
        for uid in uids:
            yield self.known.pop(uid)

    async def refuse_older(self, fresh: Mapping[str, T]) -> None:
        """Raises StoreWentBack. A backup may be restored under revisions that are higher than all before; its objects
        keep their own."""
        for index, (uid, before) in enumerate(self.known.items()):
            if index % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            item = fresh.get(uid)
            if item is None:
                continue
            listed, known = item.metadata.resource_version, before.metadata.resource_version
            if is_older(listed, known):
                what = f"{item.metadata.name} in the list of {self._path}"
                raise StoreWentBack(what, listed=listed, known=known)

    def differences(self, fresh: dict[str, T], *, unchanged: bool) -> Iterable[Change[T]]:
        """What is new or changed in a list; with `unchanged` all of it. Known from then on."""
        known = self.known
        for uid, item in fresh.items():
            before = known.get(uid)
            known[uid] = item
            if before is None:
                yield Change(ADDED, item, None)
            elif unchanged or before.metadata.resource_version != item.metadata.resource_version:
                yield Change(MODIFIED, item, before)

    def receive(self, lines: list[bytes]) -> tuple[list[Change[T]], Failure | None]:
        """What is new in some lines of a watch, and the failure that an ERROR event, or a line that is no event,
        reports; lines behind it are not looked at."""
        batch: list[Change[T]] = []
        failure: Failure | None = None
        read, known = self._read_event, self.known
        for line in lines:
            try:
                kind, uid, version, item = read(line)
            except (msgspec.MsgspecError, ValueError):
                found = self._read_slowly(line, batch)
                if isinstance(found, Failure):
                    failure = found
                    break
                if found is None:
                    continue
                kind, uid, version, item = found
            # Versions of one collection only grow along a watch, so anything older was handed over already.
            if is_older(version, self.version):
                self._count("duplicate")
                continue
            before = known.get(uid)
            if before is None:
                self.version = version
                if kind == EventType.DELETED:
                    self._count("duplicate")
                    continue
                known[uid] = item
                batch.append(Change(ADDED, item, None))
                continue
            if kind == EventType.DELETED:
                self.version = version
                del known[uid]
                batch.append(Change(DELETED, item, before))
                continue
            last = before.metadata.resource_version
            if last == version or is_older(version, last):
                self._count("duplicate")
                continue
            self.version = version
            known[uid] = item
            batch.append(Change(MODIFIED, item, before))
        return batch, failure

    def _read_slowly(self, line: bytes, batch: list[Change[T]]) -> tuple[str, str, str, T] | Failure | None:
        """Any event, as `ReadEvent` gives it. None for one that is dealt with already, having added to `batch` what is
        to be handed over for it; a failure if it reports one, or is no event."""
        try:
            kind, raw = open_event_slowly(line)
        except ValueError as unreadable:
            # Whose event it was cannot be told, and what follows would move the place to resume from past it.
            self.malformed(line, unreadable)
            return Failure(FailureClass.UNKNOWN, message=str(unreadable))
        if kind == EventType.BOOKMARK:
            self.marks = True
            self._advance(identify(raw).resource_version)
            return None
        if kind == EventType.ERROR:
            return self._error_event(raw)
        try:
            item = self._decode(raw)
        except (msgspec.MsgspecError, ValueError) as error:
            self._unreadable(kind, raw, error, batch)
            return None
        return kind, item.metadata.uid, item.metadata.resource_version, item

    def _advance(self, version: str) -> None:
        """Moves the place of the next watch forward to `version`, never back."""
        if version and not is_older(version, self.version):
            self.version = version

    def _error_event(self, raw: object) -> Failure:
        try:
            status = _decode_status(raw)  # type: ignore[arg-type]
        except msgspec.MsgspecError as error:
            return Failure(FailureClass.UNKNOWN, message=f"an ERROR event without a Status: {error}")
        return classify_status(status, code=status.code or 500)

    def _unreadable(self, kind: str, raw: Raw, error: Exception, batch: list[Change[T]]) -> None:
        """An event whose object cannot be decoded. Its place in the watch still counts."""
        who = self.malformed(bytes(raw), error)
        if is_older(who.resource_version, self.version):
            return
        if kind == EventType.DELETED and who.uid in self.known:
            old = self.known.pop(who.uid)
            batch.append(Change(DELETED, old, old))
        self._advance(who.resource_version)

    def malformed(self, raw: bytes, error: Exception) -> Identity:
        """Counts the object, and reports it unless this version of it was reported before."""
        who = identify(raw)
        self._count("malformed")
        if who.uid:
            if who in self._reported:
                return who
            while len(self._reported) >= _REPORTED:
                del self._reported[next(iter(self._reported))]
            self._reported[who] = None
        _log.warning("malformed_object", path=self._path, uid=who.uid, error=str(error))
        self._on_malformed(raw, error)
        return who
