"""What the records of watched objects have in common, of storage and of dynamic resource allocation.

Values compare by content, so that a change that matters differs from a new resourceVersion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from agent_scheduler.objects import wire
from agent_scheduler.objects.salvage import salvage


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One object at one resourceVersion."""

    name: str
    uid: str
    resource_version: str
    namespace: str = ""

    @property
    def metadata(self) -> Record:
        """Itself: a reflector reads uid, name, namespace and resource_version of an object's metadata."""
        return self


W = TypeVar("W", bound=wire.Wire)
R = TypeVar("R", bound=Record)


def reader(
    cls: type[W], compiled: Callable[[W], R], salvaged: Callable[[W, str], R] | None = None
) -> Callable[[bytes | memoryview | msgspec.Raw], R]:
    """Makes records of the bytes that the API server sends. Raises msgspec.DecodeError for what is no object.

    What has a field of the wrong shape is read without that field, by `salvaged` if that is given, whose second
    argument says what is wrong.
    """
    decode = msgspec.json.Decoder(cls).decode

    def read(raw: bytes | memoryview | msgspec.Raw) -> R:
        try:
            return compiled(decode(raw))
        except msgspec.ValidationError as error:
            rest = salvage(raw, cls)
            return compiled(rest) if salvaged is None else salvaged(rest, str(error))

    return read


def identity(metadata: wire.Metadata) -> dict[str, Any]:
    """The fields of `Record`."""
    return {
        "name": metadata.name,
        "uid": metadata.uid,
        "resource_version": metadata.resource_version,
        "namespace": metadata.namespace,
    }


def version_of(record: Record) -> int:
    """As `version_number`, of its resourceVersion."""
    return version_number(record.resource_version)


def version_number(text: str) -> int:
    """A resourceVersion as a number; those of one kind of object can be compared (KEP-5504). 0 if it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def same(one: Record, other: Record) -> bool:
    """Whether no decision can tell them apart: equal but for the resourceVersion."""
    return one == other or one == msgspec.structs.replace(other, resource_version=one.resource_version)
