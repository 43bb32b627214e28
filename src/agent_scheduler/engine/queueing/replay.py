"""Evaluates the events that happened while a pod was in flight, after its attempt has failed.

The answer equals that of a pod which had waited in the pool meanwhile. With pre-hints only the events that concern a
pod are evaluated for it: pre-hints are asked about each event of the log once, and only when a pod fails that the
plugin refused; a pod that is placed at the first attempt costs nothing here. A failing pod then looks up its own keys,
so its cost does not grow with the events of other pods.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

from msgspec import Struct
from sortedcontainers import SortedList

from ..events.hints import ClusterEventWithHint, HintFn, HintMap
from ..events.prehints import ALL_PODS, Amount, ByKeys, Key, Own, PodIndex, UpTo
from .entry import QueuedPodInfo
from .requeue import AFTER_BACKOFF, IMMEDIATELY, QueueingHints, Strategy
from .subqueues import InFlight, InFlightEvent


class Replay:
    """Owns the indexes of the log, which are derived from it."""

    def __init__(self, in_flight: InFlight, hints: QueueingHints) -> None:
        self._in_flight = in_flight
        self._hints = hints
        #: (profile, plugin) -> the plugin's index of the log; created when it first refuses a pod.
        self._indexes: dict[tuple[str, str], EventIndex] = {}

    def strategy(self, entry: QueuedPodInfo, since: int) -> Strategy:
        """Return the strategy for `entry`, which was refused in flight, after the events from position `since` on."""
        hints, in_flight = self._hints, self._in_flight
        flying = in_flight.get(entry.uid)
        assert flying is not None, f"{entry.uid} is not in flight"
        found = hints.worth_requeuing_after(entry, flying.own)
        if found is IMMEDIATELY or (found and not entry.pending_plugins):
            return found
        if since == in_flight.end:
            return found
        if not hints.pre_hints:
            return max(found, hints.worth_requeuing_after(entry, in_flight.events_from(since)))
        found = max(found, hints.worth_requeuing_after(entry, in_flight.wildcards_from(since)))
        profile = entry.pod.scheduler_name
        for plugin in entry.rejectors:
            pending = plugin in entry.pending_plugins
            # Pending plugins come first, so no later plugin can return IMMEDIATELY.
            if found and not pending:
                break
            if self._index(profile, plugin).helps(entry.pod, since):
                return IMMEDIATELY if pending else AFTER_BACKOFF
        return found

    def _index(self, profile: str, plugin: str) -> EventIndex:
        found = self._indexes.get((profile, plugin))
        if found is None:
            hint_map = self._hints.hint_maps[profile]
            found = self._indexes[profile, plugin] = EventIndex(plugin, hint_map, self._in_flight, self._hints)
        return found


class LoggedHint(NamedTuple):
    """An event of the log, and one of the hints that the plugin registered for it."""

    position: int
    hint_fn: HintFn | None


class _Verdict(Struct, gc=False):
    """The result of hints that are asked once per place, over the unkeyed events in [low, high)."""

    low: int
    high: int
    #: Position of the last event that queues the pods; -1 for none.
    last: int = -1


class _Keyed:
    """Events by the keys of one index."""

    def __init__(self) -> None:
        self.by_key: dict[Key, list[LoggedHint]] = defaultdict(list)
        #: dimension -> (offered amount, running number, event).
        self.up_to: dict[Hashable, SortedList] = {}
        #: Events that concern all pods, of hints that are asked once for all pods in a place.
        self.once: list[LoggedHint] = []
        self.verdicts: dict[Hashable, _Verdict] = {}


class EventIndex:
    """The log as one plugin of one profile indexes it. Has the positions from `_floor` to `_next`."""

    def __init__(self, plugin: str, hint_map: HintMap, in_flight: InFlight, hints: QueueingHints) -> None:
        self._plugin = plugin
        self._hint_map = hint_map
        self._in_flight = in_flight
        self._hints = hints
        self._clear(in_flight.begin)

    def _clear(self, begin: int) -> None:
        self._floor = self._next = begin
        self._everyone: list[LoggedHint] = []
        self._named: dict[Hashable, list[LoggedHint]] = defaultdict(list)
        self._keyed: dict[PodIndex, _Keyed] = defaultdict(_Keyed)
        self._count = 0

    def helps(self, pod: Any, since: int) -> bool:
        """Return whether the plugin considers an attempt worthwhile after the events from position `since` on."""
        self._catch_up()
        for logged in self._concerning(pod, since):
            if self._queues(logged, pod):
                return True
        return any(self._once(spec, keyed, pod, since) for spec, keyed in self._keyed.items() if keyed.once)

    # ---- reading

    def _concerning(self, pod: Any, since: int) -> Iterator[LoggedHint]:
        yield from _from(self._everyone, since)
        for name in (pod.uid, (pod.namespace, pod.name)):
            yield from _from(self._named.get(name, ()), since)
        for spec, keyed in self._keyed.items():
            try:
                keys = tuple(spec.keys_of(pod))
                hash(keys)
            except Exception as error:
                # As in the pool, a pod whose keys raise is asked about every event.
                self._hints.pre_hint_raised(self._plugin, error)
                for found in (*keyed.by_key.values(), keyed.once):
                    yield from _from(found, since)
                for levels in keyed.up_to.values():
                    yield from (logged for _, _, logged in levels if logged.position >= since)
                continue
            for key in (Own(pod.uid), *keys):
                if type(key) is Amount:
                    levels = keyed.up_to.get(key.dimension)
                    if levels is not None:
                        for _, _, logged in levels.irange(minimum=(key.amount,)):
                            if logged.position >= since:
                                yield logged
                else:
                    yield from _from(keyed.by_key.get(key, ()), since)

    def _once(self, spec: PodIndex, keyed: _Keyed, pod: Any, since: int) -> bool:
        """Return whether a hint that is asked once per place queues the pod, for events that concern all pods."""
        try:
            shared = (None, pod.uid) if spec.shared is None else (spec, spec.shared(pod))
            verdict = keyed.verdicts.get(shared)
        except Exception as error:
            self._hints.pre_hint_raised(self._plugin, error)
            return any(self._queues(logged, pod) for logged in _from(keyed.once, since))
        end = self._next
        if verdict is None:
            verdict = keyed.verdicts[shared] = _Verdict(end, end)
        self._ask_once(keyed, verdict, pod, max(verdict.high, self._in_flight.begin), end)
        verdict.high = end
        if verdict.last < since < verdict.low:
            self._ask_once(keyed, verdict, pod, since, verdict.low)
            verdict.low = since
        return verdict.last >= since

    def _ask_once(self, keyed: _Keyed, verdict: _Verdict, pod: Any, begin: int, stop: int) -> None:
        for logged in _from(keyed.once, begin):
            if logged.position >= stop:
                break
            if self._queues(logged, pod):
                verdict.last = max(verdict.last, logged.position)

    def _queues(self, logged: LoggedHint, pod: Any) -> bool:
        if logged.hint_fn is None:
            return True
        event, old, new = self._in_flight.at(logged.position)
        return self._hints.evaluate(self._plugin, logged.hint_fn, pod, event, old, new)

    # ---- writing

    def _catch_up(self) -> None:
        begin, end = self._in_flight.begin, self._in_flight.end
        if self._next <= begin or begin - self._floor > max(1000, end - begin):
            # No pod needs most of the indexed events any longer.
            self._clear(begin)
        for position in range(self._next, end):
            happening = self._in_flight.at(position)
            if not happening[0].is_wildcard:  # Wildcards bypass all hints.
                for registered in self._hint_map.lookup(happening[0]).get(self._plugin, ()):
                    self._file(LoggedHint(position, registered.hint_fn), registered, happening)
        self._next = end

    def _file(self, logged: LoggedHint, registered: ClusterEventWithHint, happening: InFlightEvent) -> None:
        pre_hint = registered.pre_hint
        named = self._hints.named(self._plugin, pre_hint, happening)
        if named is ALL_PODS:
            about_all = (
                self._keyed[pre_hint.index].once if isinstance(pre_hint, ByKeys) and pre_hint.once else self._everyone
            )
            about_all.append(logged)
        elif not isinstance(pre_hint, ByKeys):
            for name in named:
                self._named[name].append(logged)
        else:
            keyed = self._keyed[pre_hint.index]
            for key in named:
                if type(key) is UpTo:
                    self._count += 1
                    levels = keyed.up_to.setdefault(key.dimension, SortedList())
                    levels.add((key.amount, self._count, logged))
                else:
                    keyed.by_key[key].append(logged)


def _from(found: Any, since: int) -> Any:
    """Return those of some events, in their order, from position `since` on."""
    return found[bisect_left(found, since, key=lambda logged: logged.position) :] if found else ()
