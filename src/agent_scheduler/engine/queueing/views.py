"""The queue's views for people: pages of waiting pods, and one pod with the events that would wake it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from msgspec import Struct

from .entry import QueuedPodInfo
from .places import Place
from .queue import SchedulingQueue


class PodView(Struct, frozen=True):
    """One waiting pod as a debug page displays it. Instants are the queue's clock, in seconds."""

    uid: str
    key: str
    profile: str
    priority: int
    timestamp: float
    attempts: int
    urgent: int
    backoff_expiration: float
    unschedulable_plugins: tuple[str, ...]
    pending_plugins: tuple[str, ...]
    gating_plugin: str
    gating_message: str


class WaitingPodView(NamedTuple):
    """One pod, and the events after which it may be tried again."""

    pod: PodView
    #: Plugin -> names of the events after which it may pass the pod: all plugins that refused the last attempt, or the
    #: plugin that gates it.
    wakes: Mapping[str, tuple[str, ...]]


def find(queue: SchedulingQueue, uid: str) -> WaitingPodView | None:
    """Return one pod that waits or is in flight; None for any other."""
    entry = queue.places.entry(uid)
    if entry is None:
        return None
    hints = queue.hint_maps[entry.pod.scheduler_name]
    registered = (
        {entry.gating_plugin: entry.gating_events}
        if entry.gated
        else {plugin: hints.events_of(plugin) for plugin in entry.rejectors}
    )
    return WaitingPodView(
        _view(entry),
        {
            plugin: tuple(dict.fromkeys(name for event in events for name in event.parts()))
            for plugin, events in registered.items()
        },
    )


def page(queue: SchedulingQueue, place: Place, limit: int, *, namespace: str | None = None) -> list[PodView]:
    """Return the first `limit` pods of one place and optionally one namespace; active and backoff in their order.

    Examines each pod in the place.
    """
    places = queue.places

    def select(entry: QueuedPodInfo) -> bool:
        return namespace is None or entry.pod.namespace == namespace

    found: Iterable[QueuedPodInfo]
    match place:
        case Place.ACTIVE:
            found = places.active.first(limit, select)
        case Place.BACKOFF:
            found = places.backoff.first(limit, select)
        case Place.IN_FLIGHT:
            found = filter(select, (flying.entry for flying in places.in_flight))
        case _:
            gated = place is Place.GATED
            found = (entry for entry in places.unschedulable if entry.gated is gated and select(entry))
    return [_view(entry) for entry in islice(found, limit)]


def _view(entry: QueuedPodInfo) -> PodView:
    pod = entry.pod
    return PodView(
        uid=entry.uid,
        key=f"{pod.namespace}/{pod.name}",
        profile=pod.scheduler_name,
        priority=pod.priority,
        timestamp=entry.timestamp,
        attempts=entry.attempts,
        urgent=entry.urgent,
        backoff_expiration=entry.backoff_expiration,
        unschedulable_plugins=tuple(sorted(entry.unschedulable_plugins)),
        pending_plugins=tuple(sorted(entry.pending_plugins)),
        gating_plugin=entry.gating_plugin,
        gating_message=entry.gating_message,
    )
