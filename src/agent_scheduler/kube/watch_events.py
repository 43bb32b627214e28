"""The bytes of lists and watches, made into typed objects.

The object inside a watch event is decoded straight into its type, once. Servers write the envelope in one way
(`{"type":"ADDED","object":` ... `}`), so it is cut off by length; any other spelling takes the slower, general way
and gives the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

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


class EventType(Enum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


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


class Page(msgspec.Struct):
    """One page of a list; items are decoded later, one by one, so that one bad item spoils nothing else."""

    metadata: _ListMeta
    items: list[Raw] | None = None


decode_page = msgspec.json.Decoder(Page).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_identity = msgspec.json.Decoder(_Identified).decode

_PREFIXES = {
    kind.value[0]: (kind, prefix, len(prefix))
    for kind in (EventType.ADDED, EventType.MODIFIED, EventType.DELETED)
    for prefix in (b'{"type":"%s","object":' % kind.value.encode(),)
}
_BY_FIRST_BYTE = {ord(letter): entry for letter, entry in _PREFIXES.items()}
#: Where the event type's first letter stands in `{"type":"A`.
_LETTER = 9


def open_event(line: bytes) -> tuple[EventType, memoryview | Raw]:
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


def open_event_slowly(line: bytes) -> tuple[EventType, Raw]:
    """As `open_event`, for any spelling of the envelope."""
    try:
        envelope = _decode_envelope(line)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a watch event: {error}") from error
    try:
        return EventType(envelope.type), envelope.object
    except ValueError:
        raise ValueError(f"unknown watch event type {envelope.type!r}") from None


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
