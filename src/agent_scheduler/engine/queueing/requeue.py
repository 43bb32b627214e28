"""Whether an event makes a refused pod worth another attempt, and how soon.

After kube-scheduler's `isPodWorthRequeuing`. Only the plugins that refused the pod are asked, and asking stops
at an answer that the rest cannot improve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

from ..events.events import ClusterEvent
from ..events.hints import ERROR, QUEUE, SKIPS, HintFn, HintMap, PluginHints
from .entry import QueuedPodInfo
from .inflight import InFlightEvent
from .record import QueueRecorder


class Strategy(IntEnum):
    """Where a pod goes; the largest of several answers counts."""

    #: To the unschedulable pool.
    SKIP = 0
    #: To backoffQ while it backs off, then to activeQ.
    AFTER_BACKOFF = 1
    #: To activeQ.
    IMMEDIATELY = 2


# A member is looked up on its class by a method of Python's, which costs thirty times what a global does.
SKIP: Final = Strategy.SKIP
AFTER_BACKOFF: Final = Strategy.AFTER_BACKOFF
IMMEDIATELY: Final = Strategy.IMMEDIATELY


class RequeueJudge:
    """Asks hints. What it holds follows from them."""

    def __init__(
        self, *, hint_maps: Mapping[str, HintMap], clock: Callable[[], float], recorder: QueueRecorder
    ) -> None:
        self._hint_maps = hint_maps
        #: Answers of `of_interest`.
        self._interesting: dict[ClusterEvent, bool] = {}
        self._clock = clock
        self._recorder = recorder

    def of_interest(self, event: ClusterEvent) -> bool:
        """Whether any plugin of any profile registered `event`; always true of a wildcard."""
        found = self._interesting.get(event)
        if found is None:
            found = event.is_wildcard or any(hint_map.lookup(event) for hint_map in self._hint_maps.values())
            self._interesting[event] = found
        return found

    def lookup(self, profile: str, event: ClusterEvent) -> PluginHints:
        return self._hint_maps[profile].lookup(event)

    def after(
        self,
        entry: QueuedPodInfo[Any],
        event: ClusterEvent,
        old: object | None,
        new: object | None,
        *,
        hints: PluginHints,
    ) -> Strategy:
        """What `event` means for `entry`. `hints`: what `lookup` gives for the event, or a part of it."""
        if not entry.rejectors:
            return AFTER_BACKOFF
        if event.is_wildcard:
            # A wildcard that carries a pod is meant for that pod alone.
            elsewhere = type(new) is type(entry.pod) and getattr(new, "uid", entry.uid) != entry.uid
            return SKIP if elsewhere else AFTER_BACKOFF
        pending = entry.pending_plugins
        for plugin in entry.asked:
            for registered in hints.get(plugin, ()):
                hint_fn = registered.hint_fn
                if hint_fn is not None and not self.queues(plugin, hint_fn, entry.pod, event, old, new):
                    continue
                if plugin in pending:
                    return IMMEDIATELY
                # Pending plugins come first among the rejectors, so none is left that could say Immediately.
                return AFTER_BACKOFF
        return SKIP

    def after_all(self, entry: QueuedPodInfo[Any], events: Iterable[InFlightEvent]) -> Strategy:
        """What the best of `events`, which happened while `entry` was in flight, means for it."""
        strategy: Strategy = SKIP
        hint_map = self._hint_maps[entry.pod.scheduler_name]
        for event, old, new in events:
            found = self.after(entry, event, old, new, hints=hint_map.lookup(event))
            strategy = max(strategy, found)
            if strategy is IMMEDIATELY or (strategy and not entry.pending_plugins):
                break
        return strategy

    def queues(
        self,
        plugin: str,
        hint_fn: HintFn,
        pod: Any,
        event: ClusterEvent,
        old: object | None,
        new: object | None,
    ) -> bool:
        """What one hint of `plugin` says of `pod`; one that raises says yes."""
        started = self._clock()
        try:
            hint = hint_fn(pod, old, new)
            label = "Queue" if hint is QUEUE else "QueueSkip" if hint is SKIPS else hint.value
        except Exception as error:
            # A plugin's bug must not leave a pod waiting for an event that has passed.
            hint, label = QUEUE, ERROR
            self._recorder.plugin_raised(plugin, "QueueingHint", error)
        self._recorder.hint_evaluated(plugin, event.label, label, self._clock() - started)
        return hint is QUEUE
