"""What the events that came while a pod was in flight mean for it, when its attempt has failed.

The answer is that of a pod which had waited in the pool meanwhile. With pre-hints a pod is put those events alone that
they say concern it: they are asked about each event of the log, once, and only when a pod fails that the plugin
refused; a pod that is placed at once costs nothing here. A failing pod then looks its own keys up, so its price does
not grow with what happened meanwhile to others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Generic, NamedTuple

from msgspec import Struct
from sortedcontainers import SortedList

from ..events.hints import ClusterEventWithHint, HintFn, HintMap
from ..events.prehints import ALL_PODS, Amount, ByKeys, Key, Own, PodIndex, UpTo
from .entry import PodT, QueuedPodInfo
from .requeue import AFTER_BACKOFF, IMMEDIATELY, RequeueJudge, Strategy
from .subqueues import InFlight, InFlightEvent


class Replay(Generic[PodT]):
    """Owner of the indexes of the log, which follow from it."""

    def __init__(
        self,
        *,
        in_flight: InFlight[PodT],
        hint_maps: Mapping[str, HintMap],
        judge: RequeueJudge,
        pre_hints: bool,
    ) -> None:
        self._in_flight = in_flight
        self._hint_maps = hint_maps
        self._judge = judge
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
                self._judge,
            )
        return found


class Told(NamedTuple):
    """An event of the log, and one of the hints that the plugin registered for it."""

    position: int
    hint_fn: HintFn | None


class _Verdict(Struct, gc=False):
    """What a hint that is asked once says of those that share a place: of the events told to all in [low, high)."""

    low: int
    high: int
    #: Position of the last one that it says yes to; -1 for none.
    last: int = -1


class _Keyed:
    """Events by the keys of one index."""

    def __init__(self) -> None:
        self.by_key: dict[Key, list[Told]] = defaultdict(list)
        #: dimension -> (most that is offered, event, running number).
        self.up_to: dict[Hashable, SortedList] = {}
        #: Told to all, by hints that are asked once for all that share a place.
        self.once: list[Told] = []
        self.verdicts: dict[Hashable, _Verdict] = {}


class EventIndex:
    """The log as one plugin of one profile sees it. Nothing here is older than `_floor` or as new as `_next`."""

    def __init__(
        self,
        plugin: str,
        hints: HintMap,
        in_flight: InFlight[Any],
        judge: RequeueJudge,
    ) -> None:
        self._plugin = plugin
        self._hints = hints
        self._in_flight = in_flight
        self._judge = judge
        self._clear(in_flight.begin)

    def _clear(self, begin: int) -> None:
        self._floor = self._next = begin
        self._everyone: list[Told] = []
        self._named: dict[Hashable, list[Told]] = defaultdict(list)
        self._keyed: dict[PodIndex, _Keyed] = defaultdict(_Keyed)
        self._count = 0

    def helps(self, pod: Any, since: int) -> bool:
        """Whether an event from position `since` on is worth another attempt for `pod`, by what the plugin says."""
        self._catch_up()
        for told in self._concerning(pod, since):
            if self._queues(told, pod):
                return True
        return any(self._once(spec, keyed, pod, since) for spec, keyed in self._keyed.items() if keyed.once)

    # ---- reading

    def _concerning(self, pod: Any, since: int) -> Iterator[Told]:
        yield from _from(self._everyone, since)
        for name in (pod.uid, (pod.namespace, pod.name)):
            yield from _from(self._named.get(name, ()), since)
        for spec, keyed in self._keyed.items():
            try:
                keys = tuple(spec.keys_of(pod))
                hash(keys)
            except Exception as error:
                # As in the pool: whose keys cannot be made out hears of everything.
                self._judge.complain(self._plugin, error)
                for found in (*keyed.by_key.values(), keyed.once):
                    yield from _from(found, since)
                for levels in keyed.up_to.values():
                    yield from (told for _, _, told in levels if told.position >= since)
                continue
            for key in (Own(pod.uid), *keys):
                if type(key) is Amount:
                    levels = keyed.up_to.get(key.dimension)
                    if levels is not None:
                        for _, _, told in levels.irange(minimum=(key.amount,)):
                            if told.position >= since:
                                yield told
                else:
                    yield from _from(keyed.by_key.get(key, ()), since)

    def _once(self, spec: PodIndex, keyed: _Keyed, pod: Any, since: int) -> bool:
        """What the hints say that are asked once, of the events that were told to all."""
        try:
            shared = (None, pod.uid) if spec.shared is None else (spec, spec.shared(pod))
            verdict = keyed.verdicts.get(shared)
        except Exception as error:
            self._judge.complain(self._plugin, error)
            return any(self._queues(told, pod) for told in _from(keyed.once, since))
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
        for told in _from(keyed.once, begin):
            if told.position >= stop:
                break
            if self._queues(told, pod):
                verdict.last = max(verdict.last, told.position)

    def _queues(self, told: Told, pod: Any) -> bool:
        if told.hint_fn is None:
            return True
        event, old, new = self._in_flight.at(told.position)
        return self._judge.queues(self._plugin, told.hint_fn, pod, event, old, new)

    # ---- writing

    def _catch_up(self) -> None:
        begin, end = self._in_flight.begin, self._in_flight.end
        if self._next <= begin or begin - self._floor > max(1000, end - begin):
            # All or most of it is about events that nobody needs any more.
            self._clear(begin)
        for position in range(self._next, end):
            happening = self._in_flight.at(position)
            if not happening[0].is_wildcard:  # these pass by all hints
                for registered in self._hints.lookup(happening[0]).get(self._plugin, ()):
                    self._file(Told(position, registered.hint_fn), registered, happening)
        self._next = end

    def _file(self, told: Told, registered: ClusterEventWithHint, happening: InFlightEvent) -> None:
        pre_hint = registered.pre_hint
        named = self._judge.named(self._plugin, pre_hint, happening)
        if named is ALL_PODS:
            told_to = (
                self._keyed[pre_hint.index].once
                if isinstance(pre_hint, ByKeys) and pre_hint.once
                else self._everyone
            )
            told_to.append(told)
        elif not isinstance(pre_hint, ByKeys):
            for name in named:
                self._named[name].append(told)
        else:
            keyed = self._keyed[pre_hint.index]
            for key in named:
                if type(key) is UpTo:
                    self._count += 1
                    levels = keyed.up_to.setdefault(key.dimension, SortedList())
                    levels.add((key.amount, self._count, told))
                else:
                    keyed.by_key[key].append(told)


def _from(found: Any, since: int) -> Any:
    """Of events in their order those from `since` on."""
    return found[bisect_left(found, since, key=lambda told: told.position) :] if found else ()
