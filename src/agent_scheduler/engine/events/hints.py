"""Queueing hints: which plugin may be cured by which event, and whether this one cures it for this pod.

After KEP-4247. A `HintMap` is built once a profile; afterwards it only answers `lookup`, once an event and not
once a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final

from msgspec import Struct

from .events import ANY, ClusterEvent
from .prehints import ByKeys, PodIndex, PreHint


class QueueingHint(Enum):
    """A plugin's answer; the value is the label that kube-scheduler's histogram carries."""

    SKIP = "QueueSkip"
    QUEUE = "Queue"


#: The members, for whoever asks often (see `requeue`).
SKIPS: Final = QueueingHint.SKIP
QUEUE: Final = QueueingHint.QUEUE


#: Histogram label of a hint that raised; it counts as QUEUE, so that a faulty plugin delays nobody.
ERROR = "Error"

#: (waiting pod, object before, object after) -> hint. The object is None where it did not exist. The pod is
#: whatever value the queue holds; hints are written against that concrete type.
HintFn = Callable[[Any, object | None, object | None], QueueingHint]


class ClusterEventWithHint(Struct, frozen=True):
    """One entry of a plugin's `events_to_register()`."""

    event: ClusterEvent
    #: None stands for "always QUEUE".
    hint_fn: HintFn | None = None
    #: Whom the hint is put to; None: to all that the plugin refused. See `prehints`.
    pre_hint: PreHint | None = None


#: For one event: the plugins that registered it, each with what it registered.
PluginHints = Mapping[str, tuple[ClusterEventWithHint, ...]]


class HintMap:
    """The events that the plugins of one profile registered."""

    def __init__(self, plugins: Mapping[str, Iterable[ClusterEventWithHint] | None]) -> None:
        """`plugins`: name to its events. None: the plugin does not say, so every event concerns it; empty: none
        does, and only a flush or an activation wakes what it refused."""
        self._registered: dict[str, tuple[ClusterEventWithHint, ...]] = {
            name: (ClusterEventWithHint(ANY),) if events is None else tuple(events)
            for name, events in plugins.items()
        }
        # Owner: lookup(). Grows by one entry a distinct event, of which there are a few dozen.
        self._lookups: dict[ClusterEvent, PluginHints] = {}

    def lookup(self, event: ClusterEvent) -> PluginHints:
        """The plugins that want to hear of `event`, by name: the order in which a pod's rejectors are asked."""
        found = self._lookups.get(event)
        if found is None:
            found = self._lookups[event] = {
                name: wanted
                for name, registered in sorted(self._registered.items())
                if (wanted := tuple(entry for entry in registered if entry.event.matches(event)))
            }
        return found

    def events_of(self, plugin: str) -> tuple[ClusterEvent, ...]:
        """What `plugin` registered; empty for a plugin that this map does not know."""
        return tuple(entry.event for entry in self._registered.get(plugin, ()))

    def indexes_of(self, plugin: str) -> tuple[PodIndex, ...]:
        """By what the pods that `plugin` refused are to be found, each once."""
        entries = self._registered.get(plugin, ())
        return tuple(
            dict.fromkeys(entry.pre_hint.index for entry in entries if isinstance(entry.pre_hint, ByKeys))
        )
