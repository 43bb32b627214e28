"""What the events that came while a pod was in flight mean for it, when its attempt has failed.

The answer is that of a pod which had waited in the pool meanwhile. With pre-hints a pod is put those events alone that
they say concern it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic

from ..events.hints import HintFn, HintMap
from .entry import PodT, QueuedPodInfo
from .eventindex import EventIndex
from .inflight import InFlight
from .record import PRE_HINT, QueueRecorder
from .requeue import AFTER_BACKOFF, IMMEDIATELY, RequeueJudge, Strategy


class Replay(Generic[PodT]):
    """Owner of the indexes of the log, which follow from it."""

    def __init__(
        self,
        *,
        in_flight: InFlight[PodT],
        hint_maps: Mapping[str, HintMap],
        judge: RequeueJudge,
        recorder: QueueRecorder,
        pre_hints: bool,
    ) -> None:
        self._in_flight = in_flight
        self._hint_maps = hint_maps
        self._judge = judge
        self._recorder = recorder
        self._pre_hints = pre_hints
        #: (profile, plugin) -> what the plugin makes of the log; made when it first refuses a pod.
        self._indexes: dict[tuple[str, str], EventIndex] = {}

    def strategy(self, entry: QueuedPodInfo[PodT], since: int) -> Strategy:
        """For `entry`, which is in flight and was refused, after the events from position `since` on."""
        judge, in_flight = self._judge, self._in_flight
        flying = in_flight.get(entry.uid)
        assert flying is not None, f"{entry.uid} is not in flight"
        found = judge.after_all(entry, flying.own)
        if found is IMMEDIATELY or (found and not entry.pending_plugins):
            return found
        if since == in_flight.end:
            return found
        if not self._pre_hints:
            return max(found, judge.after_all(entry, in_flight.events_from(since)))
        found = max(found, judge.after_all(entry, in_flight.wildcards_from(since)))
        profile = entry.pod.scheduler_name
        for plugin in entry.rejectors:
            pending = plugin in entry.pending_plugins
            # Pending plugins come first: none is left that could say Immediately.
            if found and not pending:
                break
            if self._index(profile, plugin).helps(entry.pod, since):
                return IMMEDIATELY if pending else AFTER_BACKOFF
        return found

    def _index(self, profile: str, plugin: str) -> EventIndex:
        found = self._indexes.get((profile, plugin))
        if found is None:
            found = self._indexes[profile, plugin] = EventIndex(
                plugin,
                self._hint_maps[profile],
                self._in_flight,
                queues=self._queues(plugin),
                complain=lambda error: self._recorder.plugin_raised(plugin, PRE_HINT, error),
            )
        return found

    def _queues(self, plugin: str) -> Callable[[HintFn, Any, int], bool]:
        def queues(hint_fn: HintFn, pod: Any, position: int) -> bool:
            event, old, new = self._in_flight.at(position)
            return self._judge.queues(plugin, hint_fn, pod, event, old, new)

        return queues
