"""Decides whether an event makes another attempt for a refused pod worthwhile, and how soon.

Follows kube-scheduler's `isPodWorthRequeuing`. Only the plugins that refused the pod are asked, until the answer cannot
improve.

With pre-hints, a plugin's hint is evaluated for the pods that its pre-hint names (`QueueingHints.named`), and once for
all pods that share the values it depends on. Without, it is evaluated for all pods that the plugin refused. Both wake
the same pods in the same order. The search is a generator with one question per step, so that the caller may pause;
events for pods in flight are handled by `replay`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar

from ..events.events import ClusterEvent
from ..events.hints import ERROR, QUEUE, SKIPS, ClusterEventWithHint, HintFn, HintMap, PluginHints
from ..events.prehints import ALL_PODS, AllPods, ByKeys, Key, PodName, PreHint
from ..state.podinfo import PodInfo
from .entry import QueuedPodInfo
from .record import PRE_HINT, QueueRecorder
from .subqueues import InFlightEvent
from .unschedulable import Bucket, SameKeyPods, UnschedulablePods, each_once

Each = TypeVar("Each")
Result = TypeVar("Result")

#: A computation in steps, and its result.
Steps = Generator[Each, None, Result]


class Strategy(IntEnum):
    """The destination of a pod; the largest of several answers counts."""

    #: To the unschedulable pool.
    SKIP = 0
    #: To backoffQ while it backs off, then to activeQ.
    AFTER_BACKOFF = 1
    #: To activeQ.
    IMMEDIATELY = 2


# A lookup of a member on its class runs in Python and costs thirty times as much as one of a global.
SKIP: Final = Strategy.SKIP
AFTER_BACKOFF: Final = Strategy.AFTER_BACKOFF
IMMEDIATELY: Final = Strategy.IMMEDIATELY


#: Profile -> the plugins that registered one event, each with its registrations.
Registered = tuple[tuple[str, PluginHints], ...]

#: Names of pods, or keys by which they are found.
Named = AllPods | tuple[PodName | Key, ...]

Woken = tuple[QueuedPodInfo, Strategy]


def _is_name(name: object) -> bool:
    return isinstance(name, str) or (isinstance(name, tuple) and len(name) == 2)


class QueueingHints:
    """Asks hints. Its contents are derived from them."""

    def __init__(
        self, *, hint_maps: Mapping[str, HintMap], clock: Callable[[], float], recorder: QueueRecorder, pre_hints: bool
    ) -> None:
        self.hint_maps = hint_maps
        #: Whether pre-hints are asked.
        self.pre_hints = pre_hints
        #: Answers of `registered`: one for each distinct event, a few dozen in all.
        self._registered: dict[ClusterEvent, Registered] = {}
        self._clock = clock
        self.recorder = recorder

    def registered(self, event: ClusterEvent) -> Registered:
        """Return the plugins that registered `event`, by profile; every profile for a wildcard."""
        found = self._registered.get(event)
        if found is None:
            hints = [(profile, hint_map.lookup(event)) for profile, hint_map in self.hint_maps.items()]
            found = tuple(each for each in hints if each[1] or event.is_wildcard)
            self._registered[event] = found
        return found

    def lookup(self, profile: str, event: ClusterEvent) -> PluginHints:
        return self.hint_maps[profile].lookup(event)

    def named(self, plugin: str, pre_hint: PreHint | None, happening: InFlightEvent) -> Named:
        """Return the pods that a pre-hint of `plugin` names, or for `ByKeys` the keys that find them.

        Return all pods if there is nothing to narrow, and if the pre-hint raises or returns something else: it might
        have named a pod that needs the event.
        """
        is_keyed = isinstance(pre_hint, ByKeys)
        ask = pre_hint.keys if isinstance(pre_hint, ByKeys) else pre_hint
        if ask is None:
            return ALL_PODS
        try:
            found = ask(*happening)
            if found is ALL_PODS:
                return ALL_PODS
            if isinstance(found, str):
                raise TypeError(f"{found!r} is no list of pods")
            names: tuple[Any, ...] = tuple(found)
            hash(names)
            if not is_keyed and not all(map(_is_name, names)):
                raise TypeError(f"{names!r} are not all names of pods")
        except Exception as error:
            self.pre_hint_raised(plugin, error)
            return ALL_PODS
        return names

    def pre_hint_raised(self, plugin: str, error: Exception) -> None:
        """Report that `plugin` failed to name the pods that an event concerns."""
        self.recorder.plugin_raised(plugin, PRE_HINT, error)

    def worth_requeuing(
        self, entry: QueuedPodInfo, event: ClusterEvent, old: object | None, new: object | None, *, hints: PluginHints
    ) -> Strategy:
        """Return the strategy for `entry` after `event`.

        `hints` is the result of `lookup` for the event, or a part of it.
        """
        if not entry.rejectors:
            return AFTER_BACKOFF
        if event.is_wildcard:
            # A wildcard that carries a pod concerns that pod alone.
            elsewhere = type(new) is type(entry.pod) and getattr(new, "uid", entry.uid) != entry.uid
            return SKIP if elsewhere else AFTER_BACKOFF
        pending = entry.pending_plugins
        for plugin in entry.asked:
            for registered in hints.get(plugin, ()):
                hint_fn = registered.hint_fn
                if hint_fn is not None and not self.evaluate(plugin, hint_fn, entry.pod, event, old, new):
                    continue
                if plugin in pending:
                    return IMMEDIATELY
                # Pending plugins come first among the rejectors, so no later plugin can return IMMEDIATELY.
                return AFTER_BACKOFF
        return SKIP

    def worth_requeuing_after(self, entry: QueuedPodInfo, events: Iterable[InFlightEvent]) -> Strategy:
        """Return the best strategy for `entry` after `events`, which happened while it was in flight."""
        strategy: Strategy = SKIP
        hint_map = self.hint_maps[entry.pod.scheduler_name]
        for event, old, new in events:
            found = self.worth_requeuing(entry, event, old, new, hints=hint_map.lookup(event))
            strategy = max(strategy, found)
            if strategy is IMMEDIATELY or (strategy and not entry.pending_plugins):
                break
        return strategy

    def evaluate(
        self, plugin: str, hint_fn: HintFn, pod: Any, event: ClusterEvent, old: object | None, new: object | None
    ) -> bool:
        """Return whether one hint of `plugin` queues `pod`; a hint that raises counts as yes."""
        started = self._clock()
        try:
            hint = hint_fn(pod, old, new)
            label = "Queue" if hint is QUEUE else "QueueSkip" if hint is SKIPS else hint.value
        except Exception as error:
            # A plugin's bug must not leave a pod waiting for an event that has passed.
            hint, label = QUEUE, ERROR
            self.recorder.plugin_raised(plugin, "QueueingHint", error)
        self.recorder.hint_evaluated(plugin, event.label, label, self._clock() - started)
        return hint is QUEUE


class _Question(NamedTuple):
    """A hint and the pods that it is evaluated for; without a hint the answer is yes."""

    plugin: str
    hint_fn: HintFn | None
    entries: Mapping[str, QueuedPodInfo]


class RequeueSearch:
    """Finds the unschedulable pods that an event wakes. Has no state of its own."""

    def __init__(self, pool: UnschedulablePods, hints: QueueingHints) -> None:
        self._pool = pool
        self._hints = hints

    def concerns(self, event: ClusterEvent, registered: Registered) -> bool:
        """Return whether a plugin that registered `event` refused any unschedulable pod.

        Most events are a bind or the end of a pod, and most pods wait for other events.
        """
        buckets = self._pool.buckets
        return event.is_wildcard or any(
            not hints.keys().isdisjoint(buckets.get(profile, ())) for profile, hints in registered
        )

    def woken(
        self,
        registered: Registered,
        happening: InFlightEvent,
        *,
        pre_check: Callable[[PodInfo], bool] | None,
        asked_up_to: Mapping[str, int],
        number: int,
    ) -> Steps[Woken | None, None]:
        """Yield the pods for which another attempt is worthwhile, and None for each step that finds no pod.

        Profile by profile; within one, higher priorities first, then the order in which pods came to the pool. Pods
        that were `asked_up_to` the event `number` or a later one are skipped.

        Between two steps pods may come, leave and change. Pods that left are skipped; the caller enters those that came
        or changed in `asked_up_to`.
        """
        pool = self._pool
        event, old, new = happening
        for profile, hints in registered:
            questions: list[_Question] | None = None
            volatile: set[str] = set()
            if event.is_wildcard:
                asked = pool.of_profile(profile)
            elif not self._hints.pre_hints:
                asked = pool.diagnose(profile, hints)
            else:
                buckets = pool.buckets.get(profile, {})
                questions = []
                for plugin, entries in hints.items():
                    for each in entries:
                        # Its pods may have left while another plugin was asked.
                        bucket = buckets.get(plugin)
                        if bucket is None:
                            continue
                        question = yield from self._question(plugin, each, bucket, happening)
                        if question is not None:
                            questions.append(question)
                            if bucket.volatile:
                                volatile.add(plugin)
                asked = each_once([question.entries for question in questions])
            for entry in (yield from self._in_order(asked)):
                strategy: Strategy = SKIP
                if (
                    pool.entries.get(entry.uid) is entry
                    and asked_up_to.get(entry.uid, 0) < number
                    and (pre_check is None or pre_check(entry.pod))
                ):
                    if questions is None:
                        strategy = self._hints.worth_requeuing(entry, event, old, new, hints=hints)
                    else:
                        strategy = self._answer(profile, questions, happening, volatile, entry)
                yield None if strategy is SKIP else (entry, strategy)

    def _in_order(self, entries: list[QueuedPodInfo]) -> Steps[None, list[QueuedPodInfo]]:
        """Return those that are still in the pool, in the order that `woken` documents."""
        if len(entries) < 2:
            return entries
        pool = self._pool
        sequence: dict[str, int] = {}
        by_priority: dict[int, list[QueuedPodInfo]] = {}
        unordered: set[int] = set()
        for entry in entries:
            yield None
            uid, priority = entry.uid, entry.pod.priority
            if pool.entries.get(uid) is not entry:
                continue  # It has left since the question was created.
            number = sequence[uid] = pool.sequence(uid)
            peers = by_priority.setdefault(priority, [])
            if peers and number < sequence[peers[-1].uid]:
                unordered.add(priority)
            peers.append(entry)
        for priority in unordered:
            by_priority[priority].sort(key=lambda entry: sequence[entry.uid])
        if len(by_priority) == 1:
            return next(iter(by_priority.values()))
        return [entry for _, peers in sorted(by_priority.items(), reverse=True) for entry in peers]

    def _answer(
        self,
        profile: str,
        questions: Sequence[_Question],
        happening: InFlightEvent,
        volatile: Container[str],
        entry: QueuedPodInfo,
    ) -> Strategy:
        """Ask for one pod until the answer cannot improve: pending plugins first, as in `worth_requeuing`."""
        event, old, new = happening
        uid, pending = entry.uid, entry.pending_plugins
        stayed: list[str] = []
        for of_pending in (True, False) if pending else (False,):
            for plugin, hint_fn, entries in questions:
                if uid not in entries or (plugin in pending) is not of_pending:
                    continue
                if hint_fn is None or self._hints.evaluate(plugin, hint_fn, entry.pod, event, old, new):
                    return IMMEDIATELY if of_pending else AFTER_BACKOFF
                if plugin in volatile:
                    stayed.append(plugin)
        for plugin in stayed:
            self._pool.asked(profile, plugin, entry)
        return SKIP

    def _question(
        self, plugin: str, registered: ClusterEventWithHint, bucket: Bucket, happening: InFlightEvent
    ) -> Steps[None, _Question | None]:
        """Return None if no waiting pod needs to be asked."""
        pre_hint, hint_fn = registered.pre_hint, registered.hint_fn
        named = self._hints.named(plugin, pre_hint, happening)
        if not isinstance(pre_hint, ByKeys):
            entries = bucket.entries if named is ALL_PODS else self._called(named, bucket)
            if pre_hint is not None:
                self._narrowed(plugin, happening, bucket, None if named is ALL_PODS else len(entries))
            return _question_to(plugin, hint_fn, entries)
        index = bucket.indexes[pre_hint.index]
        groups = None if named is ALL_PODS else list(index.find(named))
        if pre_hint.keys is not None:
            found = None if groups is None else sum(len(group.members) for group in groups)
            self._narrowed(plugin, happening, bucket, found)
        if hint_fn is None or not pre_hint.once:
            return _question_to(plugin, hint_fn, bucket.entries if groups is None else _members(groups))
        event, old, new = happening
        agreeing: list[SameKeyPods] = []
        alone: dict[str, QueuedPodInfo] = {}
        for group in list(index.groups.values()) if groups is None else groups:
            yield None
            if pre_hint.index.volatile:
                # Pods whose shared value has changed since are asked individually.
                for entry in index.outdated(group):
                    index.update(entry)
                    if self._hints.evaluate(plugin, hint_fn, entry.pod, event, old, new):
                        alone[entry.uid] = entry
            representative = next(iter(group.members.values()), None)
            if representative is not None and self._hints.evaluate(
                plugin, hint_fn, representative.pod, event, old, new
            ):
                agreeing.append(group)
        members = _members(agreeing)
        return _question_to(plugin, None, {**members, **alone} if alone else members)

    def _narrowed(self, plugin: str, happening: InFlightEvent, bucket: Bucket, named: int | None) -> None:
        self._hints.recorder.pre_hint_evaluated(plugin, happening[0].label, named, len(bucket.entries))

    def _called(self, names: Iterable[Any], bucket: Bucket) -> dict[str, QueuedPodInfo]:
        """Return the pods in `bucket` with these names."""
        found: dict[str, QueuedPodInfo] = {}
        for name in names:
            for uid in (name,) if isinstance(name, str) else self._pool.uids_of(*name):
                if (entry := bucket.entries.get(uid)) is not None:
                    found[uid] = entry
        return found


def _question_to(plugin: str, hint_fn: HintFn | None, entries: Mapping[str, QueuedPodInfo]) -> _Question | None:
    return _Question(plugin, hint_fn, entries) if entries else None


def _members(groups: Sequence[SameKeyPods]) -> Mapping[str, QueuedPodInfo]:
    found: dict[str, QueuedPodInfo] = {}
    if len(groups) == 1:
        return groups[0].members
    for group in groups:
        found.update(group.members)
    return found
