"""Common parts of the records of watched objects of storage and of dynamic resource allocation.

Records are compared by content, so that a relevant change differs from a new resourceVersion only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from agent_scheduler.objects import wire
from apimachinery.nesting import TOO_DEEP
from apimachinery.salvage import salvage
from apimachinery.wire import Wire


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One object at one resourceVersion."""

    name: str
    uid: str
    resource_version: str
    namespace: str = ""

    @property
    def metadata(self) -> Record:
        """The record itself: a reflector reads uid, name, namespace and resource_version from an object's metadata."""
        return self


W = TypeVar("W", bound=Wire)
R = TypeVar("R", bound=Record)


def reader(
    cls: type[W], compiled: Callable[[W], R], salvaged: Callable[[W, str], R] | None = None
) -> Callable[[bytes | memoryview | msgspec.Raw], R]:
    """Return a function that decodes records; it raises msgspec.DecodeError for bytes that are no object.

    An object with a field of the wrong type is read without that field, by `salvaged` if given, whose second argument
    is the error. `salvaged` also reads an object that is nested too deeply, without its deepest levels; if it is not
    given, RecursionError is raised.
    """
    decode = msgspec.json.Decoder(cls).decode

    def read(raw: bytes | memoryview | msgspec.Raw) -> R:
        try:
            return compiled(decode(raw))
        except msgspec.ValidationError as error:
            rest = salvage(raw, cls)
            return compiled(rest) if salvaged is None else salvaged(rest, str(error))
        except RecursionError:
            if salvaged is None:
                raise
            return salvaged(salvage(raw, cls), TOO_DEEP)

    return read


def identity(metadata: wire.Metadata) -> dict[str, Any]:
    """Return the fields of `Record`."""
    return {
        "name": metadata.name,
        "uid": metadata.uid,
        "resource_version": metadata.resource_version,
        "namespace": metadata.namespace,
    }


def version_of(record: Record) -> int:
    """Return the record's resourceVersion as a number; see `version_number`."""
    return version_number(record.resource_version)


def version_number(text: str) -> int:
    """Parse a resourceVersion; those of one kind of object can be compared (KEP-5504). 0 if it is no number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def same(one: Record, other: Record) -> bool:
    """Return whether the records are equal except for the resourceVersion."""
    return one == other or one == msgspec.structs.replace(other, resource_version=one.resource_version)
