"""Whom in the pool an event is put to, and what they answer.

With pre-hints, a plugin's hint is put to the pods that its pre-hint names, and once for all that share what the hint
depends on. Without, it is put to all that the plugin refused. Either way the same pods are woken, in the same order.

All of it goes step by step, a question each, so that whoever asks may pause.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Generator, Mapping, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from ..events.events import ClusterEvent
from ..events.hints import ClusterEventWithHint, HintFn, PluginHints
from ..events.prehints import ALL_PODS, ByKeys, PreHintFn
from .entry import PodT, QueuedPodInfo
from .podindex import Group
from .record import PRE_HINT, QueueRecorder
from .requeue import AFTER_BACKOFF, IMMEDIATELY, SKIP, RequeueJudge, Strategy
from .unschedulable import Bucket, UnschedulablePool, each_once

Each = TypeVar("Each")
Result = TypeVar("Result")

#: What is done step by step, and what comes of it.
Steps = Generator[Each, None, Result]

Woken = tuple[QueuedPodInfo[PodT], Strategy]

#: Whether a UID is not to be asked about.
Spared = Callable[[str], bool]


class Happening(NamedTuple):
    """An event and what it is about."""

    event: ClusterEvent
    old: object | None
    new: object | None


class _Question(NamedTuple, Generic[PodT]):
    """A hint and the pods that it is put to; no hint: the answer is known to be yes."""

    plugin: str
    hint_fn: HintFn | None
    entries: Mapping[str, QueuedPodInfo[PodT]]


class Narrowing(Generic[PodT]):
    """Asks about one pool. Holds nothing of its own."""

    def __init__(
        self,
        *,
        pool: UnschedulablePool[PodT],
        profiles: Collection[str],
        judge: RequeueJudge,
        recorder: QueueRecorder,
        pre_hints: bool,
    ) -> None:
        self._pool = pool
        self._profiles = profiles
        self._judge = judge
        self._recorder = recorder
        self._pre_hints = pre_hints

    def concerns(self, event: ClusterEvent) -> bool:
        """Whether a plugin that wants to hear of `event` refused anybody who waits. Most events are a bind or the end
        of a pod, and most pods wait for something else."""
        if event.is_wildcard:
            return True
        for profile in self._profiles:
            hints = self._judge.lookup(profile, event)
            for plugin in self._pool.buckets(profile):
                if plugin in hints:
                    return True
        return False

    def woken(
        self, profile: str, happening: Happening, pre_check: Callable[[PodT], bool] | None, spared: Spared
    ) -> Steps[Woken[PodT] | None, None]:
        """The pods of `profile` that are worth another attempt: those of the highest priority first, of one priority
        in the order in which they came to the pool; None for each step that finds nobody. `spared`: who is not asked.

        Between two steps pods may come, go and change. Who has left is asked no more; who came or changed meanwhile is
        the caller's to spare.
        """
        event, old, new = happening
        pool, judge = self._pool, self._judge
        hints = judge.lookup(profile, event)
        answer: Callable[[QueuedPodInfo[PodT]], Strategy] = partial(
            judge.after, event=event, old=old, new=new, hints=hints
        )
        if event.is_wildcard:
            asked = pool.of_profile(profile)
        elif not hints:
            return
        elif not self._pre_hints:
            asked = pool.refused_by(profile, hints)
        else:
            questions = yield from self._questions(profile, hints, happening)
            asked = each_once([question.entries for question in questions])
            buckets = pool.buckets(profile)
            volatile = {
                plugin for plugin, _, _ in questions if plugin in buckets and buckets[plugin].volatile
            }
            answer = partial(self._answer, profile, questions, happening, volatile)
        asked = yield from self._in_order(asked)
        for entry in asked:
            strategy: Strategy = SKIP
            if (
                pool.get(entry.uid) is entry
                and not spared(entry.uid)
                and (pre_check is None or pre_check(entry.pod))
            ):
                strategy = answer(entry)
            yield None if strategy is SKIP else (entry, strategy)

    def _in_order(self, entries: list[QueuedPodInfo[PodT]]) -> Steps[None, list[QueuedPodInfo[PodT]]]:
        """Those that are still in the pool, as `woken` gives them out."""
        pool = self._pool
        sequence: dict[str, int] = {}
        by_priority: dict[int, list[QueuedPodInfo[PodT]]] = {}
        unordered: set[int] = set()
        for entry in entries:
            yield None
            uid, priority = entry.uid, entry.pod.priority
            if pool.get(uid) is not entry:
                continue  # it has left since the question was put together
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
        questions: Sequence[_Question[PodT]],
        happening: Happening,
        volatile: Container[str],
        entry: QueuedPodInfo[PodT],
    ) -> Strategy:
        """Ask for one pod until an answer cannot get better: pending plugins first, as `RequeueJudge.after` does."""
        event, old, new = happening
        uid, pending = entry.uid, entry.pending_plugins
        stayed: list[str] = []
        for of_pending in (True, False) if pending else (False,):
            for plugin, hint_fn, entries in questions:
                if uid not in entries or (plugin in pending) is not of_pending:
                    continue
                if hint_fn is None or self._judge.queues(plugin, hint_fn, entry.pod, event, old, new):
                    return IMMEDIATELY if of_pending else AFTER_BACKOFF
                if plugin in volatile:
                    stayed.append(plugin)
        for plugin in stayed:
            self._pool.asked(profile, plugin, entry)
        return SKIP

    def _questions(
        self, profile: str, hints: PluginHints, happening: Happening
    ) -> Steps[None, list[_Question[PodT]]]:
        buckets = self._pool.buckets(profile)
        questions: list[_Question[PodT]] = []
        for plugin, registered in hints.items():
            for each in registered:
                # Who was in it may have left while another plugin was asked.
                bucket = buckets.get(plugin)
                if bucket is not None:
                    question = yield from self._question(plugin, each, bucket, happening)
                    if question is not None:
                        questions.append(question)
        return questions

    def _question(
        self, plugin: str, registered: ClusterEventWithHint, bucket: Bucket[PodT], happening: Happening
    ) -> Steps[None, _Question[PodT] | None]:
        """None where it is put to nobody."""
        pre_hint, hint_fn = registered.pre_hint, registered.hint_fn
        if pre_hint is None:
            return _Question(plugin, hint_fn, bucket.entries)
        if not isinstance(pre_hint, ByKeys):
            named = self._named(plugin, pre_hint, bucket, happening)
            return _question_to(plugin, hint_fn, bucket.entries if named is None else named)
        groups = self._groups(plugin, pre_hint, bucket, happening)
        if groups is not None and not groups:
            return None
        if hint_fn is None or not pre_hint.once:
            return _Question(plugin, hint_fn, bucket.entries if groups is None else _members(groups))
        index = bucket.indexes[pre_hint.index]
        if groups is None:
            groups = list(index.groups.values())
        event, old, new = happening
        agreeing: list[Group[PodT]] = []
        alone: dict[str, QueuedPodInfo[PodT]] = {}
        for group in groups:
            yield None
            if pre_hint.index.volatile:
                # Pods that are no longer what their place says speak for nobody, and nobody for them.
                for entry in index.strayed(group):
                    index.update(entry)
                    if self._judge.queues(plugin, hint_fn, entry.pod, event, old, new):
                        alone[entry.uid] = entry
            spokesman = next(iter(group.members.values()), None)
            if spokesman is not None and self._judge.queues(plugin, hint_fn, spokesman.pod, event, old, new):
                agreeing.append(group)
        members = _members(agreeing)
        return _question_to(plugin, None, {**members, **alone} if alone else members)

    def _named(
        self, plugin: str, pre_hint: PreHintFn, bucket: Bucket[PodT], happening: Happening
    ) -> dict[str, QueuedPodInfo[PodT]] | None:
        """The pods in `bucket` that a function names; None: all."""
        found: dict[str, QueuedPodInfo[PodT]] | None = None
        try:
            names = pre_hint(*happening)
            if names is not ALL_PODS:
                if isinstance(names, str):
                    raise TypeError(f"{names!r} is no list of pods")
                found = {}
                for name in names:
                    uids = (name,) if isinstance(name, str) else self._pool.uids_of(*name)
                    for uid in uids:
                        if (entry := bucket.entries.get(uid)) is not None:
                            found[uid] = entry
        except Exception as error:
            # It may have been about to name a pod that needs the event.
            self._recorder.plugin_raised(plugin, PRE_HINT, error)
            found = None
        named = None if found is None else len(found)
        self._recorder.pre_hint_evaluated(plugin, happening.event.label, named, len(bucket.entries))
        return found

    def _groups(
        self, plugin: str, pre_hint: ByKeys, bucket: Bucket[PodT], happening: Happening
    ) -> list[Group[PodT]] | None:
        """The groups in `bucket` that have one of the event's keys; None: all."""
        if pre_hint.keys is None:
            return None
        found: list[Group[PodT]] | None = None
        try:
            keys = pre_hint.keys(*happening)
            if keys is not ALL_PODS:
                found = list(bucket.indexes[pre_hint.index].find(keys))
        except Exception as error:
            self._recorder.plugin_raised(plugin, PRE_HINT, error)
        named = None if found is None else sum(len(group.members) for group in found)
        self._recorder.pre_hint_evaluated(plugin, happening.event.label, named, len(bucket.entries))
        return found


def _question_to(
    plugin: str, hint_fn: HintFn | None, entries: Mapping[str, QueuedPodInfo[PodT]]
) -> _Question[PodT] | None:
    return _Question(plugin, hint_fn, entries) if entries else None


def _members(groups: Sequence[Group[PodT]]) -> Mapping[str, QueuedPodInfo[PodT]]:
    found: dict[str, QueuedPodInfo[PodT]] = {}
    if len(groups) == 1:
        return groups[0].members
    for group in groups:
        found.update(group.members)
    return found
