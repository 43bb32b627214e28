"""Queueing hints: the events that may resolve a plugin's refusal, and whether one does so for a certain pod.

After KEP-4247. A `HintMap` is built once per profile; afterwards it only answers `lookup`, once per event and not per
pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final

from msgspec import Struct

from .events import ANY, ClusterEvent
from .prehints import ByKeys, PodIndex, PreHint


class QueueingHint(Enum):
    """A plugin's answer; the value is the label in kube-scheduler's histogram."""

    SKIP = "QueueSkip"
    QUEUE = "Queue"


#: The members as globals, for frequent lookups (see `requeue`).
SKIPS: Final = QueueingHint.SKIP
QUEUE: Final = QueueingHint.QUEUE


#: Histogram label of a hint that raised; it counts as QUEUE, so that a faulty plugin delays no pod.
ERROR = "Error"

#: (waiting pod, object before, object after) -> hint. The object is None if it did not exist. The pod is the queue's
#: value; hints are written for that concrete type.
HintFn = Callable[[Any, object | None, object | None], QueueingHint]


class ClusterEventWithHint(Struct, frozen=True):
    """One entry of a plugin's `events_to_register()`."""

    event: ClusterEvent
    #: None means "always QUEUE".
    hint_fn: HintFn | None = None
    #: Selects the pods that the hint is evaluated for; None: all that the plugin refused. See `prehints`.
    pre_hint: PreHint | None = None


#: For one event: the plugins that registered it, each with its registrations.
PluginHints = Mapping[str, tuple[ClusterEventWithHint, ...]]


class HintMap:
    """The events that the plugins of one profile registered."""

    def __init__(self, plugins: Mapping[str, Iterable[ClusterEventWithHint] | None]) -> None:
        """Store the events of each plugin by name.

        None means that every event concerns the plugin; empty means that none does, so that only a flush or an
        activation wakes the pods that it refused.
        """
        self._registered: dict[str, tuple[ClusterEventWithHint, ...]] = {
            name: (ClusterEventWithHint(ANY),) if events is None else tuple(events) for name, events in plugins.items()
        }
        # Written by `lookup`. Has one entry per distinct event, a few dozen in all.
        self._lookups: dict[ClusterEvent, PluginHints] = {}

    def lookup(self, event: ClusterEvent) -> PluginHints:
        """Return the plugins that registered `event`, by name: the order in which a pod's rejectors are asked."""
        found = self._lookups.get(event)
        if found is None:
            found = self._lookups[event] = {
                name: wanted
                for name, registered in sorted(self._registered.items())
                if (wanted := tuple(entry for entry in registered if entry.event.matches(event)))
            }
        return found

    def events_of(self, plugin: str) -> tuple[ClusterEvent, ...]:
        """Return the events that `plugin` registered; empty for a plugin that this map does not know."""
        return tuple(entry.event for entry in self._registered.get(plugin, ()))

    def indexes_of(self, plugin: str) -> tuple[PodIndex, ...]:
        """Return the indexes of the pods that `plugin` refused, without duplicates."""
        entries = self._registered.get(plugin, ())
        return tuple(dict.fromkeys(entry.pre_hint.index for entry in entries if isinstance(entry.pre_hint, ByKeys)))
