"""What a reflector hands over: one step of one object."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, Generic, TypeVar

import msgspec

from agent_scheduler.kube.watch_events import Object

T = TypeVar("T", bound=Object)


class ChangeType(Enum):
    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"

    # Enum's own is computed in Python, and every change is counted by its type.
    __hash__ = object.__hash__


# Looked up once: in Python 3.11 a member is found on its class by a method of Python's.
ADDED: Final = ChangeType.ADDED
MODIFIED: Final = ChangeType.MODIFIED
DELETED: Final = ChangeType.DELETED


class Change(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One step of one object, made for every event, hence a struct (a named tuple costs five times as much).

    `old` is the version handed over before, None for ADDED. `object` of DELETED is the last state known."""

    type: ChangeType
    object: T
    old: T | None


#: Called synchronously, so it must be quick. What it raises ends `Reflector.run`.
Handler = Callable[[list[Change[T]]], None]
