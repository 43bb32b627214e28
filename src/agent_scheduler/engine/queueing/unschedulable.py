"""unschedulablePods: pods that wait for an event because plugins refused them, or because they are gated.

kube-scheduler keeps a plain map and checks every pod for every event. Here pods are also indexed by the plugins that
refused them, and by the keys of these plugins, so the cost of an event depends on the pods that it could wake and not
on all waiting pods.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Container,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from typing import Any, NamedTuple

from msgspec import Struct
from sortedcontainers import SortedDict

from ..events.hints import HintMap
from ..events.prehints import Amount, Key, Own, PodIndex, UpTo
from .entry import QueuedPodInfo
from .subqueues import EntryHeap


class SameKeyPods(Struct, eq=False, gc=False):
    """Pods with the same keys; never empty while in an index. `gc=False` is safe: it is in no reference cycle."""

    shared: Hashable
    keys: tuple[Key, ...]
    members: dict[str, QueuedPodInfo]


class _UnsharedKey(Struct, frozen=True):
    """The shared value of a pod that shares its place with no other."""

    uid: str


class RefusedIndex:
    """Owns the groups of one index.

    Invariants: a pod is in one group, which is filed under each of its keys and nowhere else; a pod whose keys raised
    is in a group of its own that every search returns.
    """

    __slots__ = ("_by_amount", "_by_key", "_group_of", "_keyless", "_raised", "groups", "spec")

    def __init__(self, spec: PodIndex, raised: Callable[[Exception], None]) -> None:
        """Create an empty index; `raised` receives the errors of the plugin's own functions."""
        self.spec = spec
        self._raised = raised
        self.groups: dict[Hashable, SameKeyPods] = {}
        self._group_of: dict[str, SameKeyPods] = {}
        self._by_key: dict[Key, dict[Hashable, SameKeyPods]] = {}
        #: dimension -> amount -> groups.
        self._by_amount: dict[Hashable, SortedDict] = {}
        self._keyless: dict[Hashable, SameKeyPods] = {}

    def add(self, entry: QueuedPodInfo) -> None:
        """Add `entry`, which must not be present."""
        spec, uid = self.spec, entry.uid
        try:
            shared: Hashable = _UnsharedKey(uid) if spec.shared is None else spec.shared(entry.pod)
            group = self.groups.get(shared)
            if group is None:
                group = SameKeyPods(shared, tuple(spec.keys_of(entry.pod)), {})
                self._file(group)
        except Exception as error:
            # A plugin's bug must not hide a pod from the events that it waits for.
            self._raised(error)
            alone = _UnsharedKey(uid)
            group = self._keyless[alone] = self.groups[alone] = SameKeyPods(alone, (), {})
        group.members[uid] = entry
        self._group_of[uid] = group

    def remove(self, uid: str) -> None:
        group = self._group_of.pop(uid)
        del group.members[uid]
        if not group.members:
            self._drop(group)

    def update(self, entry: QueuedPodInfo) -> None:
        """Update the keys of `entry`, which is present and has another version of its pod."""
        spec = self.spec
        if spec.shared is not None:
            try:
                if spec.shared(entry.pod) == self._group_of[entry.uid].shared:
                    return
            except Exception as error:
                self._raised(error)
        self.remove(entry.uid)
        self.add(entry)

    def outdated(self, group: SameKeyPods) -> list[QueuedPodInfo]:
        """Return the leading pods of a group that now belong to another one. The next pod represents the group.

        The pods behind it are not checked: a changed object is reported for them by an event of its own.
        """
        found: list[QueuedPodInfo] = []
        shared = self.spec.shared
        if shared is None:
            return found
        for entry in group.members.values():
            try:
                if shared(entry.pod) == group.shared:
                    break
            except Exception as error:
                self._raised(error)
            found.append(entry)
        return found

    def find(self, keys: Iterable[Key]) -> Iterable[SameKeyPods]:
        """Return the groups that have one of `keys`, without duplicates. Raises TypeError for an unhashable key."""
        found: dict[Hashable, SameKeyPods] = dict(self._keyless)
        for key in keys:
            if type(key) is UpTo:
                levels = self._by_amount.get(key.dimension)
                if levels is not None:
                    for amount in levels.irange(maximum=key.amount):
                        found.update(levels[amount])
            elif type(key) is Own:
                group = self._group_of.get(key.uid)
                if group is not None:
                    found[group.shared] = group
            else:
                filed = self._by_key.get(key)
                if filed is not None:
                    found.update(filed)
        return found.values()

    def _file(self, group: SameKeyPods) -> None:
        hash(group.keys)  # An unhashable key must raise before anything is filed.
        for key in group.keys:
            if type(key) is Amount:
                levels = self._by_amount.setdefault(key.dimension, SortedDict())
                levels.setdefault(key.amount, {})[group.shared] = group
            else:
                self._by_key.setdefault(key, {})[group.shared] = group
        self.groups[group.shared] = group

    def _drop(self, group: SameKeyPods) -> None:
        shared = group.shared
        del self.groups[shared]
        self._keyless.pop(shared, None)
        # A key may occur twice.
        for key in dict.fromkeys(group.keys):
            if type(key) is Amount:
                levels = self._by_amount[key.dimension]
                _discard(levels, key.amount, shared)
                if not levels:
                    del self._by_amount[key.dimension]
            else:
                _discard(self._by_key, key, shared)

    def check_invariants(self, entries: dict[str, QueuedPodInfo]) -> None:
        """Raise AssertionError unless the index has exactly `entries` and is consistent."""
        assert self._group_of.keys() == entries.keys(), "the index and the pool have other pods"
        members = {uid: group for group in self.groups.values() for uid in group.members}
        assert members.keys() == entries.keys(), "a pod is in no group"
        for uid, group in members.items():
            assert self._group_of[uid] is group and group.members[uid] is entries[uid], f"{uid} is in another group"
        filed = {(key, shared) for key, groups in self._by_key.items() for shared in groups}
        filed |= {
            (Amount(dimension, amount), shared)
            for dimension, levels in self._by_amount.items()
            for amount, groups in levels.items()
            for shared in groups
        }
        assert filed == {(key, group.shared) for group in self.groups.values() for key in group.keys}, (
            "keys and groups disagree"
        )
        if self.spec.shared is None or self._keyless or self.spec.volatile:
            return
        for uid, entry in entries.items():
            assert self._group_of[uid].shared == self.spec.shared(entry.pod), f"the keys of {uid} are outdated"


def _discard(filed: MutableMapping[Any, dict[Any, Any]], key: Hashable, each: Hashable) -> None:
    found = filed[key]
    del found[each]
    if not found:
        del filed[key]


class Bucket:
    """The pods of one profile that one plugin refused, oldest first. Never empty while in the pool."""

    __slots__ = ("entries", "indexes", "volatile")

    def __init__(self, specs: tuple[PodIndex, ...], raised: Callable[[Exception], None]) -> None:
        self.entries: dict[str, QueuedPodInfo] = {}
        self.indexes: dict[PodIndex, RefusedIndex] = {spec: RefusedIndex(spec, raised) for spec in specs}
        #: Indexes whose keys are read again whenever a pod was asked.
        self.volatile = tuple(index for spec, index in self.indexes.items() if spec.volatile)

    def add(self, entry: QueuedPodInfo) -> None:
        self.entries[entry.uid] = entry
        for index in self.indexes.values():
            index.add(entry)

    def remove(self, uid: str) -> None:
        del self.entries[uid]
        for index in self.indexes.values():
            index.remove(uid)


class _IndexEntry(NamedTuple):
    """The place of an entry in the indexes, to find it after its rejectors changed."""

    profile: str
    plugins: tuple[str, ...]
    #: Position in the order in which pods came to the pool.
    sequence: int


class UnschedulablePods:
    """Owns every pod that only an event, an activation or the leftover flush can move."""

    def __init__(self, *, hint_maps: Mapping[str, HintMap], raised: Callable[[str, Exception], None]) -> None:
        """Create an empty pool.

        `hint_maps`, by profile, name the indexes of each plugin; pods of other profiles are indexed by plugin only.
        """
        self._hint_maps = hint_maps
        self._raised = raised
        #: The entries by UID. Read only.
        self.entries: dict[str, QueuedPodInfo] = {}
        #: profile -> plugin -> the pods that it refused. An entry is under each plugin of `QueuedPodInfo.asked`. Empty
        #: buckets are dropped. Read only.
        self.buckets: dict[str, dict[str, Bucket]] = {}
        self._filed: dict[str, _IndexEntry] = {}
        # (namespace, name) -> entries by UID; None until the first lookup by name.
        self._names: dict[tuple[str, str], dict[str, QueuedPodInfo]] | None = None
        # The instant at which each pod has waited too long for an event.
        self._stale = EntryHeap()
        self._gated: set[str] = set()
        self._sequence = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, uid: object) -> bool:
        return uid in self.entries

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        return iter(self.entries.values())

    def uids_of(self, namespace: str, name: str) -> Collection[str]:
        """Return the UIDs of the pods with this name: one, unless the watch has yet to report a deletion."""
        if self._names is None:
            self._names = {}
            for entry in self.entries.values():
                self._names.setdefault((entry.pod.namespace, entry.pod.name), {})[entry.uid] = entry
        return self._names.get((namespace, name), ())

    @property
    def gated(self) -> int:
        """The number of gated pods."""
        return len(self._gated)

    def reconfigure(self, hint_maps: Mapping[str, HintMap]) -> None:
        """Index the same pods by other keys."""
        self._hint_maps = hint_maps
        self.buckets = {}
        for uid, entry in self.entries.items():
            filed = self._filed[uid]
            for plugin in filed.plugins:
                self._bucket(filed.profile, plugin).add(entry)

    def put(self, entry: QueuedPodInfo, *, stale_at: float) -> None:
        """Keep `entry`, which has at least one rejector, until `stale_at` at the latest.

        A pod that is already present is filed again.
        """
        assert entry.rejectors, f"{entry.uid}: a pod without rejectors would never be woken"
        self.remove(entry.uid)
        uid, pod = entry.uid, entry.pod
        self.entries[uid] = entry
        profile = pod.scheduler_name
        plugins = entry.asked
        self._sequence += 1
        self._filed[uid] = _IndexEntry(profile, plugins, self._sequence)
        for plugin in plugins:
            self._bucket(profile, plugin).add(entry)
        if self._names is not None:
            self._names.setdefault((pod.namespace, pod.name), {})[uid] = entry
        if entry.gating_plugin:
            self._gated.add(uid)
        self._stale.push(entry, (stale_at,))

    def _bucket(self, profile: str, plugin: str) -> Bucket:
        buckets = self.buckets.setdefault(profile, {})
        found = buckets.get(plugin)
        if found is None:
            raised, hints = self._raised, self._hint_maps.get(profile)
            specs = () if hints is None else hints.indexes_of(plugin)
            found = buckets[plugin] = Bucket(specs, lambda error: raised(plugin, error))
        return found

    def remove(self, uid: str) -> QueuedPodInfo | None:
        entry = self.entries.pop(uid, None)
        if entry is None:
            return None
        filed = self._filed.pop(uid)
        for plugin in filed.plugins:
            buckets = self.buckets[filed.profile]
            buckets[plugin].remove(uid)
            if not buckets[plugin].entries:
                del buckets[plugin]
        if self._names is not None:
            _discard(self._names, (entry.pod.namespace, entry.pod.name), uid)
        self._gated.discard(uid)
        self._stale.remove(uid)
        return entry

    def update(self, entry: QueuedPodInfo) -> None:
        """Update the keys of `entry`, which is present and has another version of its pod."""
        filed = self._filed[entry.uid]
        for plugin in filed.plugins:
            for index in self.buckets[filed.profile][plugin].indexes.values():
                index.update(entry)

    def asked(self, profile: str, plugin: str, entry: QueuedPodInfo) -> None:
        """Update volatile indexes after a hint of `plugin` was evaluated for `entry`, which stays."""
        for index in self.buckets[profile][plugin].volatile:
            index.update(entry)

    def diagnose(self, profile: str, plugins: Container[str]) -> list[QueuedPodInfo]:
        """Return the pods of `profile` that one of `plugins` could admit, without duplicates."""
        return each_once(
            [bucket.entries for plugin, bucket in self.buckets.get(profile, {}).items() if plugin in plugins]
        )

    def of_profile(self, profile: str) -> list[QueuedPodInfo]:
        """Return all pods of `profile`, oldest first."""
        return [entry for entry in self.entries.values() if entry.pod.scheduler_name == profile]

    def sequence(self, uid: str) -> int:
        """Return the pod's number, which increases in the order in which pods came to the pool."""
        return self._filed[uid].sequence

    def stale(self, now: float, limit: int) -> list[QueuedPodInfo]:
        """Return up to `limit` pods that have waited too long at `now`; they stay until they are moved or put again."""
        return self._stale.pop_until(now, limit)

    def next_stale(self) -> float | None:
        """Return the instant at which the next pod has waited too long, or None if no pod waits."""
        return self._stale.first_key()

    def check_invariants(self) -> None:
        filed: dict[str, set[str]] = {}
        for profile, buckets in self.buckets.items():
            for plugin, bucket in buckets.items():
                assert bucket.entries, f"an empty bucket is kept for {profile}/{plugin}"
                for uid, entry in bucket.entries.items():
                    assert self.entries.get(uid) is entry, f"{uid} is filed under {plugin} but not here"
                    assert entry.pod.scheduler_name == profile, f"{uid} is filed under the wrong profile"
                    filed.setdefault(uid, set()).add(plugin)
                for index in bucket.indexes.values():
                    index.check_invariants(bucket.entries)
        for uid, entry in self.entries.items():
            expected = set(entry.asked)
            assert filed.pop(uid, set()) == expected, f"{uid} is not filed under the plugins that refused it"
            assert uid in self._stale, f"{uid} would never be flushed"
            assert (uid in self._gated) == entry.gated, f"{uid} is miscounted as gated"
        assert len(self._stale) == len(self._gated | self.entries.keys()) == len(self.entries)
        if self._names is not None:
            named = {(uid, name) for name, found in self._names.items() for uid in found}
            known = {(uid, (entry.pod.namespace, entry.pod.name)) for uid, entry in self.entries.items()}
            assert named == known, "pods are not known by their names"


def each_once(found: Sequence[Mapping[str, QueuedPodInfo]]) -> list[QueuedPodInfo]:
    """Return the pods of some mappings by UID, without duplicates."""
    if len(found) == 1:
        return list(found[0].values())
    union: dict[str, QueuedPodInfo] = {}
    for each in found:
        union.update(each)
    return list(union.values())
