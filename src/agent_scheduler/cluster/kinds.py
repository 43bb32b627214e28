"""Kinds of objects as they are watched, and those that wake pods when they change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.kube.transport import collection_at
from agent_scheduler.kube.watch_events import Decode, Object, ReadEvent

from .subscribers import Events

R = TypeVar("R", bound=Object)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object that is watched: where it is, how it is read, and who is told of it.

    What `read` gives has `metadata` with uid, name, namespace and resource_version; it raises msgspec.DecodeError.
    """

    name: str
    path: str
    read: Decode[Any]
    set: Callable[[Any], None]
    delete: Callable[[Any], None]
    query: dict[str, str] | None = None
    #: How its events are read, if there is a quicker way than by `read`.
    read_event: ReadEvent[Any] | None = None
    #: Whether a server may not have it; that counts as having none.
    optional: bool = False
    #: Whether decisions on an old view of it could give the same room or device away twice, and nobody would notice.
    #: Of volumes the API server does: they are written with the version that was seen.
    vital: bool = False
    #: What is kept of an object, where that is as it was read.
    known: Callable[[Any], Any] | None = None
    #: Plugins that decide by it; empty for what everything is decided by.
    readers: tuple[str, ...] = ()

    @property
    def resource(self) -> str:
        """As roles name it: `queues.scheduling.volcano.sh`."""
        version, resource = collection_at(self.path)
        group = version.split("/")[2] if version.startswith("/apis/") else ""
        return f"{resource}.{group}" if group else resource


def cached_kind(
    events: Events,
    kind: Resource,
    path: str,
    read: Decode[R],
    *,
    known: Callable[[R], R | None],
    put: Callable[[R], bool],
    drop: Callable[[R], bool],
    changed: Callable[[R], None] = lambda _: None,
    optional: bool = False,
    vital: bool = False,
) -> Kind:
    """A kind whose objects a catalogue keeps, and whose changes wake pods.

    `known` is what the catalogue has of an object; `put` and `drop` say whether a decision can see the change, and if
    so `events` are told, and then `changed` is called.
    """
    added, updated, deleted = (
        ClusterEvent(kind, action) for action in (ActionType.ADD, ActionType.UPDATE, ActionType.DELETE)
    )

    def change(new: R) -> None:
        old = known(new)
        if put(new):
            events.move_all(added if old is None else updated, old, new)
            changed(new)

    def delete(gone: R) -> None:
        old = known(gone)
        if drop(gone):
            events.move_all(deleted, old, None)
            changed(gone)

    return Kind(kind.value, path, read, change, delete, optional=optional, vital=vital, known=known)
