"""Which of the events that were kept for pods in flight concern a pod that one plugin refused.

The same pre-hints that narrow the pool are asked about each event of the log, once, and only when a pod fails that the
plugin refused; a pod that is placed at once costs nothing here. A failing pod then looks its own keys up, so its price
does not grow with what happened meanwhile to others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

from msgspec import Struct
from sortedcontainers import SortedList

from ..events.hints import HintFn, HintMap
from ..events.prehints import ALL_PODS, Amount, ByKeys, Key, Own, PodIndex, UpTo
from .inflight import InFlight


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
        *,
        queues: Callable[[HintFn, Any, int], bool],
        complain: Callable[[Exception], None],
    ) -> None:
        """`queues` puts a hint to a pod, about the event at a position; `complain` is told what the plugin raised."""
        self._plugin = plugin
        self._hints = hints
        self._in_flight = in_flight
        self._queues = queues
        self._complain = complain
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
            if told.hint_fn is None or self._queues(told.hint_fn, pod, told.position):
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
                self._complain(error)
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
            self._complain(error)
            return any(
                told.hint_fn is None or self._queues(told.hint_fn, pod, told.position)
                for told in _from(keyed.once, since)
            )
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
            if told.hint_fn is None or self._queues(told.hint_fn, pod, told.position):
                verdict.last = max(verdict.last, told.position)

    # ---- writing

    def _catch_up(self) -> None:
        begin, end = self._in_flight.begin, self._in_flight.end
        if self._next <= begin or begin - self._floor > max(1000, end - begin):
            # All or most of it is about events that nobody needs any more.
            self._clear(begin)
        for position in range(self._next, end):
            event, old, new = self._in_flight.at(position)
            if event.is_wildcard:
                continue  # these pass by all hints
            for registered in self._hints.lookup(event).get(self._plugin, ()):
                told = Told(position, registered.hint_fn)
                pre_hint = registered.pre_hint
                if pre_hint is None:
                    self._everyone.append(told)
                    continue
                try:
                    if isinstance(pre_hint, ByKeys):
                        self._file_by_keys(pre_hint, told, event, old, new)
                    else:
                        named = pre_hint(event, old, new)
                        if named is ALL_PODS:
                            self._everyone.append(told)
                        elif isinstance(named, str):
                            raise TypeError(f"{named!r} is no list of pods")
                        else:
                            for name in list(named):
                                self._named[name].append(told)
                except Exception as error:
                    self._complain(error)
                    self._everyone.append(told)
        self._next = end

    def _file_by_keys(self, pre_hint: ByKeys, told: Told, event: Any, old: Any, new: Any) -> None:
        keyed = self._keyed[pre_hint.index]
        keys = ALL_PODS if pre_hint.keys is None else pre_hint.keys(event, old, new)
        if keys is ALL_PODS:
            (keyed.once if pre_hint.once else self._everyone).append(told)
            return
        found = tuple(keys)
        hash(found)
        for key in found:
            if type(key) is UpTo:
                self._count += 1
                levels = keyed.up_to.setdefault(key.dimension, SortedList())
                levels.add((key.amount, self._count, told))
            else:
                keyed.by_key[key].append(told)


def _from(found: Any, since: int) -> Any:
    """Of events in their order those from `since` on."""
    return found[bisect_left(found, since, key=lambda told: told.position) :] if found else ()
