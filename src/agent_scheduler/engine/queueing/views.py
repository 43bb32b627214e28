"""What the queue tells people: where a pod is, how many wait, and a page of details."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from msgspec import Struct

from ..events.hints import HintMap
from .entry import QueuedPodInfo


class Place(StrEnum):
    """The one place in which a pod is while it waits; the label of pending_pods."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in_flight"


#: The members, for whoever asks often (see `requeue`).
ACTIVE: Final = Place.ACTIVE
BACKOFF: Final = Place.BACKOFF
UNSCHEDULABLE: Final = Place.UNSCHEDULABLE
GATED: Final = Place.GATED


class PendingCounts(NamedTuple):
    """Pods by place. `unschedulable` leaves out the gated ones."""

    active: int
    backoff: int
    unschedulable: int
    gated: int
    in_flight: int


class PodView(Struct, frozen=True):
    """One waiting pod, as a debug page shows it. Instants are the queue's clock, in seconds."""

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


class WaitingPod(NamedTuple):
    """One pod, and who would have to hear of what for it to be tried again."""

    pod: PodView
    #: Plugin -> the events after which it may let the pod pass, by name: of all plugins that refused the last attempt,
    #: or of the one that gates it.
    wakes: Mapping[str, tuple[str, ...]]


def waiting_pod(entry: QueuedPodInfo[Any], hints: HintMap) -> WaitingPod:
    registered = (
        {entry.gating_plugin: entry.gating_events}
        if entry.gated
        else {plugin: hints.events_of(plugin) for plugin in entry.rejectors}
    )
    return WaitingPod(
        view(entry),
        {
            plugin: tuple(dict.fromkeys(name for event in events for name in event.parts()))
            for plugin, events in registered.items()
        },
    )


def view(entry: QueuedPodInfo[Any]) -> PodView:
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
