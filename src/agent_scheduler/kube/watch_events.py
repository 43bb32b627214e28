"""The bytes of lists and watches, made into typed objects.

The object inside a watch event is decoded straight into its type, once. Servers write the envelope in one way
(`{"type":"ADDED","object":` ... `}`), so it is cut off by length; any other spelling takes the slower, general way
and gives the same result. Who makes objects may as well read the envelope with them (`ReadEvent`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Raw


class ObjectMeta(Protocol):
    """What a reflector reads of an object's metadata."""

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
#: Makes one object of its JSON. Raises msgspec.MsgspecError, or ValueError, for one that it cannot read.
Decode = Callable[[bytes | memoryview | Raw], T]
#: Of the line of a watch event its type (ADDED, MODIFIED or DELETED), its object's UID and version, and the object.
#: Raises as `Decode`, also for a line that is another event or none: it is then read in the general way.
ReadEvent = Callable[[bytes], tuple[str, str, str, T]]


class EventType:
    """The types of watch events, as they are written: the first three are about an object."""

    ADDED: Final = "ADDED"
    MODIFIED: Final = "MODIFIED"
    DELETED: Final = "DELETED"
    BOOKMARK: Final = "BOOKMARK"
    ERROR: Final = "ERROR"


_ABOUT_OBJECTS: Final = (EventType.ADDED, EventType.MODIFIED, EventType.DELETED)
_TYPES: Final = (*_ABOUT_OBJECTS, EventType.BOOKMARK, EventType.ERROR)


class Identity(NamedTuple):
    """As much of an object as could be read when the rest could not. Empty where not even that."""

    uid: str
    resource_version: str


class _Envelope(msgspec.Struct):
    type: str
    object: Raw


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _Identified(msgspec.Struct):
    metadata: _Meta = _Meta()


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class Page(msgspec.Struct, rename="camel"):
    """One page of a list; items are decoded later, one by one, so that one bad item spoils nothing else."""

    metadata: _ListMeta
    kind: str = ""
    api_version: str = ""
    items: list[Raw] | None = None


decode_page = msgspec.json.Decoder(Page).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_identity = msgspec.json.Decoder(_Identified).decode

_PREFIXES = {
    kind[0]: (kind, prefix, len(prefix))
    for kind in _ABOUT_OBJECTS
    for prefix in (b'{"type":"%s","object":' % kind.encode(),)
}
_BY_FIRST_BYTE = {ord(letter): entry for letter, entry in _PREFIXES.items()}
#: Where the event type's first letter stands in `{"type":"A`.
_LETTER = 9


def open_event(line: bytes) -> tuple[str, memoryview | Raw]:
    """The type of a watch event and its object's bytes. Raises ValueError if the line is no watch event.

    The bytes are only sure to be the object's if they decode: a line whose envelope has more members than two comes
    out of the fast path with those at its end, and has to go through `open_event_slowly`.
    """
    entry = _BY_FIRST_BYTE.get(line[_LETTER]) if len(line) > _LETTER else None
    if entry is not None:
        kind, prefix, length = entry
        if line.startswith(prefix):
            return kind, memoryview(line)[length : line.rfind(b"}")]
    return open_event_slowly(line)


def event_reader(decode: Decode[T]) -> ReadEvent[T]:
    """Reads the events about objects that `decode` makes, as servers usually write them."""

    def read(line: bytes) -> tuple[str, str, str, T]:
        kind, raw = open_event(line)
        if kind not in _ABOUT_OBJECTS:
            raise ValueError(f"{kind} is about no object")
        item = decode(raw)
        metadata = item.metadata
        return kind, metadata.uid, metadata.resource_version, item

    return read


def open_event_slowly(line: bytes) -> tuple[str, Raw]:
    """As `open_event`, for any spelling of the envelope."""
    try:
        envelope = _decode_envelope(line)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a watch event: {error}") from error
    if envelope.type not in _TYPES:
        raise ValueError(f"unknown watch event type {envelope.type!r}")
    return envelope.type, envelope.object


def identify(raw: bytes | memoryview | Raw) -> Identity:
    """Who a malformed object is, as far as can be told."""
    try:
        meta = _decode_identity(raw).metadata
    except msgspec.MsgspecError:
        return Identity("", "")
    return Identity(meta.uid, meta.resource_version)


def version(text: str) -> int | None:
    """A resourceVersion as a number, which KEP-5504 makes comparable; None for anything else."""
    return int(text) if text.isdecimal() and text.isascii() else None


def is_older(text: str, than: str) -> bool:
    """Whether both are numbers and the first is the smaller one. Nothing is known of other versions."""
    if text >= than and len(text) == len(than):
        # So it is in the order of texts, which for numbers of as many digits is their own.
        return False
    number, other = version(text), version(than)
    return number is not None and other is not None and number < other
