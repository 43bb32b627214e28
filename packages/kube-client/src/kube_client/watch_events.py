"""Decodes lists and watches into typed objects, and computes the changes of a collection (`CollectionView`).

The object of a watch event is decoded straight into its type, once. Servers write the envelope in one form
(`{"type":"ADDED","object":` ... `}`), so it is cut off by length; any other spelling takes the slower, general path
with the same result. A decoder may also read the envelope itself (`ReadEvent`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping
from enum import Enum
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Raw

from apimachinery.nesting import TOO_DEEP, shallow
from kube_client.errors import UNREADABLE, Failure, FailureClass, Status, StoreWentBack, classify_status
from kube_client.logs import get_logger


class ObjectMeta(Protocol):
    """The metadata fields that a reflector reads."""

    @property
    def uid(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


class Object(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=Object)
#: Creates an object from its JSON. Any exception means that the object cannot be read, and is left out.
Decode = Callable[[bytes | memoryview | Raw], T]
#: Returns the type (ADDED, MODIFIED or DELETED), the object's UID and version, and the object of a watch event's
#: line. Raises as `Decode` does, also for other events and invalid lines, which then take the general path.
ReadEvent = Callable[[bytes], tuple[str, str, str, T]]
#: Objects of a list that are decoded or compared before other tasks run: about 2 ms of pods.
SLICE = 500


class EventType:
    """The types of watch events; the first three concern an object."""

    ADDED: Final = "ADDED"
    MODIFIED: Final = "MODIFIED"
    DELETED: Final = "DELETED"
    BOOKMARK: Final = "BOOKMARK"
    ERROR: Final = "ERROR"


_ABOUT_OBJECTS: Final = (EventType.ADDED, EventType.MODIFIED, EventType.DELETED)
_TYPES: Final = (*_ABOUT_OBJECTS, EventType.BOOKMARK, EventType.ERROR)


class Identity(NamedTuple):
    """The identity of an object that could not be decoded. Unreadable fields are empty."""

    uid: str
    resource_version: str
    namespace: str = ""
    name: str = ""


#: Receives the identity of an object that cannot be read and the reason, once for each version.
Unreadable = Callable[[Identity, str], None]


class _Envelope(msgspec.Struct):
    type: str
    object: Raw


class _Identified(msgspec.Struct):
    metadata: Raw = Raw()


class _Identifying(msgspec.Struct, rename="camel"):
    """The fields one by one, so that an invalid one does not hide the others."""

    uid: Raw = Raw()
    resource_version: Raw = Raw()
    namespace: Raw = Raw()
    name: Raw = Raw()


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_identified = msgspec.json.Decoder(_Identified).decode
_decode_metadata = msgspec.json.Decoder(_Identifying).decode
_decode_text = msgspec.json.Decoder(str).decode

_PREFIXES = {
    kind[0]: (kind, prefix, len(prefix))
    for kind in _ABOUT_OBJECTS
    for prefix in (b'{"type":"%s","object":' % kind.encode(),)
}
_BY_FIRST_BYTE = {ord(letter): entry for letter, entry in _PREFIXES.items()}
#: It cannot occur within a text, where a quotation mark is escaped, and the object's own version comes first.
_VERSION_FIELD: Final = b'"resourceVersion":"'
_MODIFIED: Final = b'{"type":"MODIFIED"'
#: The position of the event type's first letter in `{"type":"A`.
_LETTER = 9


def open_event(line: bytes) -> tuple[str, memoryview | Raw]:
    """Return the type of a watch event and its object's bytes. Raises ValueError if the line is no watch event.

    The bytes are the object's only if they can be decoded: if the envelope has more than two members, the fast path
    returns them at the end of the bytes, and `open_event_slowly` is needed.
    """
    entry = _BY_FIRST_BYTE.get(line[_LETTER]) if len(line) > _LETTER else None
    if entry is not None:
        kind, prefix, length = entry
        if line.startswith(prefix):
            return kind, memoryview(line)[length : line.rfind(b"}")]
    return open_event_slowly(line)


def event_reader(decode: Decode[T]) -> ReadEvent[T]:
    """Return a reader of events whose objects `decode` creates, in the usual form of servers."""

    def read(line: bytes) -> tuple[str, str, str, T]:
        kind, raw = open_event(line)
        if kind not in _ABOUT_OBJECTS:
            raise ValueError(f"{kind} concerns no object")
        item = decode(raw)
        metadata = item.metadata
        return kind, metadata.uid, metadata.resource_version, item

    return read


def _version_of_change(line: bytes) -> str:
    """Return the version of a changed object in the usual form of servers, without decoding it; empty if not found."""
    at = line.find(_VERSION_FIELD) if line.startswith(_MODIFIED) else -1
    if at < 0:
        return ""
    at += len(_VERSION_FIELD)
    return line[at : line.find(b'"', at, at + _VERSION_DIGITS + 1)].decode("latin-1")


def open_event_slowly(line: bytes) -> tuple[str, Raw]:
    """Parse as `open_event` does, for any spelling of the envelope.

    Raises RecursionError if the object is nested too deeply.
    """
    try:
        envelope = _decode_envelope(line)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a watch event: {error}") from error
    if envelope.type not in _TYPES:
        raise ValueError(f"unknown watch event type {envelope.type!r}")
    return envelope.type, envelope.object


def identify(raw: bytes | memoryview | Raw) -> Identity:
    """Return the identity of a malformed object as far as it can be read."""
    try:
        found = _decode_metadata(_decode_identified(shallow(raw)).metadata)
    except msgspec.MsgspecError:
        return Identity("", "")
    return Identity(*map(_text, (found.uid, found.resource_version, found.namespace, found.name)))


def _text(raw: Raw) -> str:
    try:
        return _decode_text(raw)
    except msgspec.MsgspecError:
        return ""


def problem_of(error: Exception) -> str:
    """Return why an object cannot be read."""
    if isinstance(error, RecursionError):
        return TOO_DEEP
    is_expected = isinstance(error, msgspec.MsgspecError | ValueError)
    return str(error) if is_expected else f"{type(error).__name__}: {error}"


#: The digits of the largest number that a version can be: 2**64 - 1.
_VERSION_DIGITS: Final = 20


def version(text: str) -> int | None:
    """Return a resourceVersion as a number, which KEP-5504 makes comparable; None for anything else."""
    return int(text) if len(text) <= _VERSION_DIGITS and text.isdecimal() and text.isascii() else None


def is_older(text: str, than: str) -> bool:
    """Return whether both are numbers and the first is smaller. Other versions are not comparable."""
    if text >= than and len(text) == len(than):
        # The order of texts is that of numbers with the same number of digits.
        return False
    number, other = version(text), version(than)
    return number is not None and other is not None and number < other


class ChangeType(Enum):
    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"

    # Enum's own hash is computed in Python, and every change is counted by its type.
    __hash__ = object.__hash__


# Looked up once: in Python 3.11 an attribute access on an Enum class runs Python code.
ADDED: Final = ChangeType.ADDED
MODIFIED: Final = ChangeType.MODIFIED
DELETED: Final = ChangeType.DELETED


class Change(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One step of one object, as a reflector delivers it. A struct, because a named tuple costs five times as much.

    `old` is the version delivered before, None for ADDED. `object` of DELETED is the last known state.
    """

    type: ChangeType
    object: T
    old: T | None


#: Called synchronously, so it must be quick. Its exceptions end `Reflector.run`.
Handler = Callable[[list[Change[T]]], None]


_log = get_logger(__name__)
_decode_status = msgspec.json.Decoder(Status).decode
#: How many malformed objects are remembered, so that each is reported once.
_REPORTED = 1024


class CollectionView(Generic[T]):
    """The delivered state of a collection. The arguments are as for `Reflector`.

    `known` has the last delivered object by UID; it serves to find what a list no longer has and to refuse older
    versions. `version` is the newest version of the whole collection, where the next watch begins. Only a list can set
    it back, and not to before `proved`. `written` delivers an object before the watch shows it.
    """

    def __init__(
        self,
        path: str,
        decode: Decode[T],
        read_event: ReadEvent[T] | None,
        *,
        count: Callable[[str], None],
        unreadable: Unreadable = lambda _who, _problem: None,
    ) -> None:
        self._path = path
        self._decode = decode
        self._read_event = read_event or event_reader(decode)
        self._count = count
        self._tell_unreadable = unreadable
        self.known: dict[str, T] = {}
        #: Objects created by this process that no list or watch has shown yet, by UID. None of them is in `known`.
        self.learned: dict[str, T] = {}
        #: Objects that `written` has delivered and neither a list nor the watch has shown yet: version -> JSON.
        self._ahead: dict[str, bytes] = {}
        self.version = ""
        #: The last bookmark's version, and the version before the bookmarks since the last object.
        self._marked = self._before_marks = ""
        #: Whether the server sends bookmarks.
        self.marks = False
        self._reported: dict[Identity, None] = {}

    @property
    def proved(self) -> str:
        """The newest version that a list or an object had.

        A bookmark only says that nothing happened up to its version, so the objects do not depend on it.
        """
        return self._before_marks if self.version == self._marked else self.version

    def take(self, uids: list[str]) -> Iterable[T]:
        """Remove and yield the objects with these UIDs."""
        for uid in uids:
            yield self.known.pop(uid) if uid in self.known else self.learned.pop(uid)

    async def refuse_older(self, fresh: Mapping[str, T], revision: str) -> None:
        """Raise StoreWentBack if an object in a list of this revision is older than before.

        A backup may be restored with a higher revision than all before, but its objects keep their old ones.
        """
        for index, (uid, before) in enumerate(self.known.items()):
            if index % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            item = fresh.get(uid)
            if item is None:
                continue
            listed, known = item.metadata.resource_version, before.metadata.resource_version
            if is_older(listed, known) and not self._is_ahead(known, revision):
                what = f"{item.metadata.name} in the list of {self._path}"
                raise StoreWentBack(what, listed=listed, known=known)

    def learn(self, made: T) -> bool:
        """Remember an object that this process created. Return false if its deletion was already seen.

        If it is deleted before a list, no watch shows it, but the handler still receives DELETED.
        """
        metadata = made.metadata
        if metadata.uid in self.known:
            return True
        if is_older(metadata.resource_version, self.version):
            return False
        self.learned[metadata.uid] = made
        return True

    def written(self, body: bytes) -> Change[T] | None:
        """Return the change that a response to a write of this process shows, if nothing newer is known of the object.

        The watch's event about this version is then no change.
        """
        try:
            item = self._decode(body)
        except Exception:
            # The watch delivers this version, too, and then reports why it cannot be read.
            return None
        metadata = item.metadata
        before = self.known.get(metadata.uid)
        if before is None or not is_older(before.metadata.resource_version, metadata.resource_version):
            return None
        self.known[metadata.uid] = item
        self._ahead[metadata.resource_version] = body
        return Change(MODIFIED, item, before)

    def _is_ahead(self, version: str, revision: str) -> bool:
        """Return whether a known version is from a response to a write after a list of this revision."""
        return version in self._ahead and is_older(revision, version)

    def missing(self, fresh: Container[str], revision: str) -> list[str]:
        """Return the UIDs of objects that are missing in a list of this revision."""
        late = (uid for uid, item in self.learned.items() if not is_older(revision, item.metadata.resource_version))
        return [uid for uid in (*self.known, *late) if uid not in fresh]

    def differences(self, fresh: dict[str, T], revision: str, *, unchanged: bool) -> Iterable[Change[T]]:
        """Yield what is new or changed in a list, or all of it with `unchanged`, and remember it as known."""
        known = self.known
        for uid, item in fresh.items():
            before = known.get(uid)
            if before is not None and self._ahead and self._is_ahead(before.metadata.resource_version, revision):
                item = self._decode(self._ahead[before.metadata.resource_version]) if unchanged else before
            known[uid] = item
            if before is None:
                self.learned.pop(uid, None)
                yield Change(ADDED, item, None)
            elif unchanged or before.metadata.resource_version != item.metadata.resource_version:
                yield Change(MODIFIED, item, before)

    def listed(self, revision: str) -> None:
        """Continue from a list of this revision, whose differences were delivered."""
        self.version = revision
        self._ahead = {version: body for version, body in self._ahead.items() if is_older(revision, version)}

    def receive(self, lines: list[bytes]) -> tuple[list[Change[T]], Failure | None]:
        """Return what is new in some lines of a watch, and the failure of an ERROR event or of an invalid line.

        Lines after it are ignored.
        """
        batch: list[Change[T]] = []
        failure: Failure | None = None
        read, known = self._read_event, self.known
        for line in lines:
            if self._ahead and (version := _version_of_change(line)) in self._ahead:
                del self._ahead[version]
                self._advance(version)
                continue
            try:
                kind, uid, version, item = read(line)
            except Exception:
                found = self._read_slowly(line, batch)
                if isinstance(found, Failure):
                    failure = found
                    break
                if found is None:
                    continue
                kind, uid, version, item = found
            # Versions only grow along a watch of one collection, so an older one was already delivered.
            if is_older(version, self.version):
                if not is_older(self.proved, version):
                    self._count("duplicate")
                    continue
                # A bookmark was ahead of the events.
                self.version = self.proved
            before = known.get(uid)
            if before is None:
                self.learned.pop(uid, None)
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
            self.version = version
            if last == version or is_older(version, last):
                self._count("duplicate")
                continue
            known[uid] = item
            batch.append(Change(MODIFIED, item, before))
        return batch, failure

    def _read_slowly(self, line: bytes, batch: list[Change[T]]) -> tuple[str, str, str, T] | Failure | None:
        """Parse any event, as `ReadEvent` does. Return a failure for an ERROR event or an invalid line.

        Return None for an event that is already handled, with its change, if any, added to `batch`.
        """
        is_deep = False
        try:
            try:
                kind, raw = open_event_slowly(line)
            except RecursionError:
                is_deep = True
                kind, raw = open_event_slowly(shallow(line))
        except ValueError as unreadable:
            # The object is unknown, and later events would move the resume position past it.
            self.malformed(line, unreadable)
            return Failure(FailureClass.UNKNOWN, message=str(unreadable))
        if kind == EventType.BOOKMARK:
            self.marks = True
            if self.version != self._marked:
                self._before_marks = self.version
            self._advance(identify(raw).resource_version)
            self._marked = self.version
            return None
        if kind == EventType.ERROR:
            return self._error_event(raw)
        try:
            # The bytes in `raw` lack the deep levels; a decoder may have a way of its own with the whole object.
            item = self._decode(open_event(line)[1] if is_deep else raw)
        except Exception as error:
            self._unreadable(kind, raw, error, batch)
            return None
        return kind, item.metadata.uid, item.metadata.resource_version, item

    def _advance(self, version: str) -> None:
        """Move the start of the next watch forward to `version`, never back."""
        if version and not is_older(version, self.version):
            self.version = version

    def _error_event(self, raw: object) -> Failure:
        try:
            status = _decode_status(raw)  # type: ignore[arg-type]
        except UNREADABLE as error:
            return Failure(FailureClass.UNKNOWN, message=f"an ERROR event without a Status: {error}")
        return classify_status(status, code=status.code or 500)

    def _unreadable(self, kind: str, raw: Raw, error: Exception, batch: list[Change[T]]) -> None:
        """Handle an event whose object cannot be decoded. Its version still counts for the watch."""
        who = self.malformed(bytes(raw), error)
        if is_older(who.resource_version, self.version):
            return
        if kind == EventType.DELETED and who.uid in self.known:
            old = self.known.pop(who.uid)
            batch.append(Change(DELETED, old, old))
        self._advance(who.resource_version)

    def malformed(self, raw: bytes, error: Exception) -> Identity:
        """Count the object, and report it unless this version was already reported."""
        who = identify(raw)
        self._count("malformed")
        if who.uid:
            if who in self._reported:
                return who
            while len(self._reported) >= _REPORTED:
                del self._reported[next(iter(self._reported))]
            self._reported[who] = None
        problem = problem_of(error)
        _log.warning(
            "malformed object",
            path=self._path,
            key=f"{who.namespace}/{who.name}" if who.namespace else who.name,
            uid=who.uid,
            resource_version=who.resource_version,
            error=problem,
        )
        if who.uid:
            self._tell_unreadable(who, problem)
        return who
