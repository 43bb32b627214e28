"""The kinds of watched objects, including those that wake pods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from kube_client.transport import collection_at
from kube_client.watch_events import Decode, Object, ReadEvent

from .subscribers import EventReceivers

R = TypeVar("R", bound=Object)


@dataclass(frozen=True, slots=True)
class Kind:
    """A watched kind: its path, its decoder, and the receivers of changes.

    The result of `read` has `metadata` with uid, name, namespace and resource_version; `read` raises
    msgspec.DecodeError.
    """

    name: str
    path: str
    read: Decode[Any]
    set: Callable[[Any], None]
    delete: Callable[[Any], None]
    query: dict[str, str] | None = None
    #: A faster decoder of its events, if there is one.
    read_event: ReadEvent[Any] | None = None
    #: Whether a server may lack it, which counts as no objects.
    optional: bool = False
    #: Whether decisions with an old view could assign the same room or device twice without anything noticing it. For
    #: volumes the API server does: they are written with the version that was seen.
    vital: bool = False
    #: Returns the stored object, if it is stored as decoded.
    known: Callable[[Any], Any] | None = None
    #: Plugins that need it; empty if all decisions do.
    readers: tuple[str, ...] = ()

    @property
    def resource(self) -> str:
        """The name in roles: `queues.scheduling.volcano.sh`."""
        version, resource = collection_at(self.path)
        group = version.split("/")[2] if version.startswith("/apis/") else ""
        return f"{resource}.{group}" if group else resource


def cached_kind(
    events: EventReceivers,
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
    """Return a kind whose objects a catalog stores, and whose changes wake pods.

    `known` returns the stored object. `put` and `drop` return whether decisions are affected; if so, `events` are
    informed and then `changed` is called.
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
