"""Whom in the pool an event is put to, and what they answer.

With pre-hints, a plugin's hint is put to the pods that its pre-hint names, and once for all that share what the hint
depends on. Without, it is put to all that the plugin refused. Either way the same pods are woken, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, NamedTuple

from .entry import PodT, QueuedPodInfo
from .events import ClusterEvent
from .hints import ClusterEventWithHint, HintFn, PluginHints
from .podindex import Group
from .prehints import ALL_PODS, ByKeys, PreHintFn
from .record import PRE_HINT, QueueRecorder
from .requeue import AFTER_BACKOFF, IMMEDIATELY, SKIP, RequeueJudge, Strategy
from .unschedulable import Bucket, UnschedulablePool


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
        self, profile: str, happening: Happening, pre_check: Callable[[PodT], bool] | None
    ) -> list[tuple[QueuedPodInfo[PodT], Strategy]]:
        """The pods of `profile` that are worth another attempt, in the order in which they came to the pool."""
        pool, judge = self._pool, self._judge
        hints = judge.lookup(profile, happening.event)
        if happening.event.is_wildcard:
            asked = pool.of_profile(profile)
        elif not hints:
            return []
        elif self._pre_hints:
            questions = self._questions(profile, hints, happening)
            if not questions:
                return []
            found = self._answered(profile, questions, happening, pre_check)
            return sorted(found.values(), key=lambda each: pool.sequence(each[0].uid))
        else:
            asked = pool.refused_by(profile, hints)
        event, old, new = happening
        woken: list[tuple[QueuedPodInfo[PodT], Strategy]] = [
            (entry, strategy)
            for entry in asked
            if (pre_check is None or pre_check(entry.pod))
            and (strategy := judge.after(entry, event, old, new, hints=hints)) is not SKIP
        ]
        woken.sort(key=lambda each: pool.sequence(each[0].uid))
        return woken

    def _answered(
        self,
        profile: str,
        questions: list[_Question[PodT]],
        happening: Happening,
        pre_check: Callable[[PodT], bool] | None,
    ) -> dict[str, tuple[QueuedPodInfo[PodT], Strategy]]:
        """Ask each pod until an answer cannot get better: pending plugins first, as `RequeueJudge.after` does."""
        judge, (event, old, new) = self._judge, happening
        found: dict[str, tuple[QueuedPodInfo[PodT], Strategy]] = {}
        volatile = {plugin for plugin, _, _ in questions if self._pool.buckets(profile)[plugin].volatile}
        stayed: list[tuple[str, QueuedPodInfo[PodT]]] = []
        passes = (True, False) if self._pool.pending else (False,)
        for of_pending in passes:
            strategy = IMMEDIATELY if of_pending else AFTER_BACKOFF
            for plugin, hint_fn, entries in questions:
                for uid, entry in entries.items():
                    if uid in found or (plugin in entry.pending_plugins) is not of_pending:
                        continue
                    if pre_check is not None and not pre_check(entry.pod):
                        continue
                    if hint_fn is None or judge.queues(plugin, hint_fn, entry.pod, event, old, new):
                        found[uid] = (entry, strategy)
                    elif plugin in volatile:
                        stayed.append((plugin, entry))
        for plugin, entry in stayed:
            self._pool.asked(profile, plugin, entry)
        return found

    def _questions(self, profile: str, hints: PluginHints, happening: Happening) -> list[_Question[PodT]]:
        buckets = self._pool.buckets(profile)
        questions: list[_Question[PodT]] = []
        for plugin, registered in hints.items():
            bucket = buckets.get(plugin)
            if bucket is not None:
                for each in registered:
                    question = self._question(plugin, each, bucket, happening)
                    if question is not None:
                        questions.append(question)
        return questions

    def _question(
        self, plugin: str, registered: ClusterEventWithHint, bucket: Bucket[PodT], happening: Happening
    ) -> _Question[PodT] | None:
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
        if not pre_hint.index.volatile:
            return _question_to(plugin, None, _members(self._agreeing(plugin, hint_fn, groups, happening)))
        # Pods that are no longer what their place says speak for nobody, and nobody for them.
        apart = [entry for group in groups for entry in index.strayed(group)]
        for entry in apart:
            index.update(entry)
        groups = [group for group in groups if group.members]
        agreeing = dict(_members(self._agreeing(plugin, hint_fn, groups, happening)))
        event, old, new = happening
        for entry in apart:
            if self._judge.queues(plugin, hint_fn, entry.pod, event, old, new):
                agreeing[entry.uid] = entry
        return _question_to(plugin, None, agreeing)

    def _agreeing(
        self, plugin: str, hint_fn: HintFn, groups: list[Group[PodT]], happening: Happening
    ) -> list[Group[PodT]]:
        """The groups whose spokesman's hint says yes."""
        queues, (event, old, new) = self._judge.queues, happening
        return [
            group
            for group in groups
            if queues(plugin, hint_fn, next(iter(group.members.values())).pod, event, old, new)
        ]

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
