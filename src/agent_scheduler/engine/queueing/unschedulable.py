"""The pool of pods that wait for something to change: refused by plugins, or gated before they were tried.

kube-scheduler keeps a plain map and asks every pod about every event. Here pods are also found by who refused
them, and by the keys that these plugins give them, so an event costs what it could wake and not what waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, KeysView, Mapping, Sequence
from typing import Generic, NamedTuple

from ..events.hints import HintMap
from ..events.prehints import PodIndex
from .entry import PodT, QueuedPodInfo
from .podindex import RefusedIndex
from .subqueues import EntryHeap

#: Is told which plugin raised while a pod's keys were made out, and what.
Complain = Callable[[str, Exception], None]


class Bucket(Generic[PodT]):
    """The pods of one profile that one plugin refused, oldest first. Never empty while it is in the pool."""

    __slots__ = ("entries", "indexes", "volatile")

    def __init__(self, specs: tuple[PodIndex, ...], complain: Callable[[Exception], None]) -> None:
        self.entries: dict[str, QueuedPodInfo[PodT]] = {}
        self.indexes: dict[PodIndex, RefusedIndex[PodT]] = {
            spec: RefusedIndex(spec, complain) for spec in specs
        }
        #: Those whose keys are read again whenever a pod was asked.
        self.volatile = tuple(index for spec, index in self.indexes.items() if spec.volatile)

    def add(self, entry: QueuedPodInfo[PodT]) -> None:
        self.entries[entry.uid] = entry
        for index in self.indexes.values():
            index.add(entry)

    def remove(self, uid: str) -> None:
        del self.entries[uid]
        for index in self.indexes.values():
            index.remove(uid)


class _Filed(NamedTuple):
    """Where an entry is filed, so that it is found again after its rejectors changed."""

    profile: str
    plugins: tuple[str, ...]
    #: Place in the order in which pods came here.
    sequence: int


class UnschedulablePool(Generic[PodT]):
    """Owner of every pod that only an event, an activation or the leftover flush can move."""

    __slots__ = (
        "_complain",
        "_entries",
        "_filed",
        "_gated",
        "_hint_maps",
        "_names",
        "_pending",
        "_sequence",
        "_stale",
        "buckets",
    )

    def __init__(self, *, hint_maps: Mapping[str, HintMap], complain: Complain) -> None:
        """`hint_maps`, by profile, say by what the pods that a plugin refused are found; those of a profile that is not
        there by the plugin alone."""
        self._hint_maps = hint_maps
        self._complain = complain
        self._entries: dict[str, QueuedPodInfo[PodT]] = {}
        #: profile -> plugin -> the pods that it refused. An entry is under each plugin of `QueuedPodInfo.asked`. Empty
        #: buckets are dropped. To be read.
        self.buckets: dict[str, dict[str, Bucket[PodT]]] = {}
        self._filed: dict[str, _Filed] = {}
        # (namespace, name) -> UIDs; None until somebody asks for a pod by name.
        self._names: dict[tuple[str, str], set[str]] | None = None
        # When each pod has waited too long for an event.
        self._stale: EntryHeap[PodT] = EntryHeap()
        self._gated: set[str] = set()
        # Those that wait for a plugin of theirs that has something pending.
        self._pending: set[str] = set()
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uid: object) -> bool:
        return uid in self._entries

    def __iter__(self) -> Iterator[QueuedPodInfo[PodT]]:
        return iter(self._entries.values())

    def uids(self) -> KeysView[str]:
        """The UIDs that are here, as a view that stays current."""
        return self._entries.keys()

    def get(self, uid: str) -> QueuedPodInfo[PodT] | None:
        return self._entries.get(uid)

    def uids_of(self, namespace: str, name: str) -> Collection[str]:
        """The UIDs of the pods here that have this name: one, unless the watch has yet to tell of a deletion."""
        if self._names is None:
            self._names = {}
            for entry in self._entries.values():
                self._names.setdefault((entry.pod.namespace, entry.pod.name), set()).add(entry.uid)
        return self._names.get((namespace, name), ())

    @property
    def gated(self) -> int:
        """How many of the pods are gated."""
        return len(self._gated)

    @property
    def pending(self) -> int:
        """How many of the pods have a pending plugin."""
        return len(self._pending)

    def reconfigure(self, hint_maps: Mapping[str, HintMap]) -> None:
        """From now on pods are found by other keys. The same pods stay here."""
        self._hint_maps = hint_maps
        self.buckets = {}
        for uid, entry in self._entries.items():
            filed = self._filed[uid]
            for plugin in filed.plugins:
                self._bucket(filed.profile, plugin).add(entry)

    def put(self, entry: QueuedPodInfo[PodT], *, stale_at: float) -> None:
        """Keep `entry`, which has at least one rejector, until `stale_at` at the latest.

        Once more for a pod that is here already files it anew.
        """
        assert entry.rejectors, f"{entry.uid}: a pod that nobody refused would never be woken"
        self.remove(entry.uid)
        uid, pod = entry.uid, entry.pod
        self._entries[uid] = entry
        profile = pod.scheduler_name
        plugins = entry.asked
        self._sequence += 1
        self._filed[uid] = _Filed(profile, plugins, self._sequence)
        for plugin in plugins:
            self._bucket(profile, plugin).add(entry)
        if self._names is not None:
            self._names.setdefault((pod.namespace, pod.name), set()).add(uid)
        if entry.gating_plugin:
            self._gated.add(uid)
        if entry.pending_plugins:
            self._pending.add(uid)
        self._stale.push(entry, (stale_at,))

    def _bucket(self, profile: str, plugin: str) -> Bucket[PodT]:
        buckets = self.buckets.setdefault(profile, {})
        found = buckets.get(plugin)
        if found is None:
            complain, hints = self._complain, self._hint_maps.get(profile)
            specs = () if hints is None else hints.indexes_of(plugin)
            found = buckets[plugin] = Bucket(specs, lambda error: complain(plugin, error))
        return found

    def remove(self, uid: str) -> QueuedPodInfo[PodT] | None:
        entry = self._entries.pop(uid, None)
        if entry is None:
            return None
        filed = self._filed.pop(uid)
        for plugin in filed.plugins:
            buckets = self.buckets[filed.profile]
            bucket = buckets[plugin]
            bucket.remove(uid)
            if not bucket.entries:
                del buckets[plugin]
        if self._names is not None:
            name = (entry.pod.namespace, entry.pod.name)
            self._names[name].discard(uid)
            if not self._names[name]:
                del self._names[name]
        self._gated.discard(uid)
        self._pending.discard(uid)
        self._stale.remove(uid)
        return entry

    def update(self, entry: QueuedPodInfo[PodT]) -> None:
        """`entry`, which is here, has another version of its pod: it is found by what that says now."""
        filed = self._filed[entry.uid]
        for plugin in filed.plugins:
            for index in self.buckets[filed.profile][plugin].indexes.values():
                index.update(entry)

    def asked(self, profile: str, plugin: str, entry: QueuedPodInfo[PodT]) -> None:
        """A hint of `plugin` was put to `entry`, which stays."""
        for index in self.buckets[profile][plugin].volatile:
            index.update(entry)

    def refused_by(self, profile: str, plugins: Container[str]) -> list[QueuedPodInfo[PodT]]:
        """The pods of `profile` that one of `plugins` could let in, each once."""
        return each_once(
            [bucket.entries for plugin, bucket in self.buckets.get(profile, {}).items() if plugin in plugins]
        )

    def of_profile(self, profile: str) -> list[QueuedPodInfo[PodT]]:
        """All pods of `profile`, oldest first."""
        return [entry for entry in self._entries.values() if entry.pod.scheduler_name == profile]

    def sequence(self, uid: str) -> int:
        """Rises from pod to pod in the order in which they came here."""
        return self._filed[uid].sequence

    def stale(self, now: float, limit: int) -> list[QueuedPodInfo[PodT]]:
        """Up to `limit` pods that have waited too long at `now`; they stay here until they are moved or put again."""
        return self._stale.pop_until(now, limit)

    def next_stale(self) -> float | None:
        """When the next pod has waited too long, or None when nobody waits."""
        return self._stale.first_key()

    def check_invariants(self) -> None:
        filed: dict[str, set[str]] = {}
        for profile, buckets in self.buckets.items():
            for plugin, bucket in buckets.items():
                assert bucket.entries, f"an empty bucket is kept for {profile}/{plugin}"
                for uid, entry in bucket.entries.items():
                    assert self._entries.get(uid) is entry, f"{uid} is filed under {plugin} but not here"
                    assert entry.pod.scheduler_name == profile, f"{uid} is filed under the wrong profile"
                    filed.setdefault(uid, set()).add(plugin)
                for index in bucket.indexes.values():
                    index.check_invariants(bucket.entries)
        for uid, entry in self._entries.items():
            expected = set(entry.asked)
            assert filed.pop(uid, set()) == expected, f"{uid} is not filed under who refused it"
            assert uid in self._stale, f"{uid} would never be flushed"
            assert (uid in self._gated) == entry.gated, f"{uid} is miscounted as gated"
            assert (uid in self._pending) == bool(entry.pending_plugins), f"{uid} is miscounted as pending"
        assert len(self._stale) == len(self._gated | self._entries.keys()) == len(self._entries)
        if self._names is not None:
            named = {
                (uid, uid in self.uids_of(entry.pod.namespace, entry.pod.name))
                for uid, entry in self._entries.items()
            }
            known = {(uid, True) for uids in self._names.values() for uid in uids}
            assert named == known, "pods are not known by their names"


def each_once(found: Sequence[Mapping[str, QueuedPodInfo[PodT]]]) -> list[QueuedPodInfo[PodT]]:
    """The pods of some mappings by UID."""
    if len(found) == 1:
        return list(found[0].values())
    union: dict[str, QueuedPodInfo[PodT]] = {}
    for each in found:
        union.update(each)
    return list(union.values())
