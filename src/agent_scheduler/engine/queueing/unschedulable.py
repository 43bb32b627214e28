"""The pool of pods that wait for something to change: refused by plugins, or gated before they were tried.

kube-scheduler keeps a plain map and asks every pod about every event. Here pods are also found by who refused
them, so an event costs what it could wake and not what waits.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, KeysView
from typing import Generic

from .entry import PodT, QueuedPodInfo
from .heap import EntryHeap


class UnschedulablePool(Generic[PodT]):
    """Owner of every pod that only an event, an activation or the leftover flush can move."""

    __slots__ = ("_by_rejector", "_entries", "_filed", "_gated", "_stale")

    def __init__(self) -> None:
        self._entries: dict[str, QueuedPodInfo[PodT]] = {}
        # profile -> plugin -> UID -> entry. An entry is under each of its rejectors; a gated one only under its
        # gating plugin, because no other plugin's event can let it in. Empty buckets are dropped.
        self._by_rejector: dict[str, dict[str, dict[str, QueuedPodInfo[PodT]]]] = {}
        # UID -> (profile, plugins) where the entry is filed above, so that it is found again after its
        # rejectors changed.
        self._filed: dict[str, tuple[str, tuple[str, ...]]] = {}
        # When each pod has waited too long for an event.
        self._stale: EntryHeap[PodT] = EntryHeap()
        self._gated: set[str] = set()

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

    @property
    def gated(self) -> int:
        """How many of the pods are gated."""
        return len(self._gated)

    def put(self, entry: QueuedPodInfo[PodT], *, stale_at: float) -> None:
        """Keep `entry`, which has at least one rejector, until `stale_at` at the latest.

        Once more for a pod that is here already files it anew.
        """
        assert entry.rejectors, f"{entry.uid}: a pod that nobody refused would never be woken"
        self.remove(entry.uid)
        uid = entry.uid
        self._entries[uid] = entry
        profile = entry.pod.scheduler_name
        plugins = (entry.gating_plugin,) if entry.gating_plugin else entry.rejectors
        self._filed[uid] = (profile, plugins)
        buckets = self._by_rejector.setdefault(profile, {})
        for plugin in plugins:
            buckets.setdefault(plugin, {})[uid] = entry
        if entry.gating_plugin:
            self._gated.add(uid)
        self._stale.push(entry, (stale_at,))

    def remove(self, uid: str) -> QueuedPodInfo[PodT] | None:
        entry = self._entries.pop(uid, None)
        if entry is None:
            return None
        profile, plugins = self._filed.pop(uid)
        buckets = self._by_rejector[profile]
        for plugin in plugins:
            bucket = buckets[plugin]
            del bucket[uid]
            if not bucket:
                del buckets[plugin]
        self._gated.discard(uid)
        self._stale.remove(uid)
        return entry

    def refused_by(self, profile: str, plugins: Container[str]) -> list[QueuedPodInfo[PodT]]:
        """The pods of `profile` that one of `plugins` could let in, each once, oldest refusal first by plugin."""
        buckets = [
            bucket for plugin, bucket in self._by_rejector.get(profile, {}).items() if plugin in plugins
        ]
        if len(buckets) == 1:
            return list(buckets[0].values())
        union: dict[str, QueuedPodInfo[PodT]] = {}
        for bucket in buckets:
            union.update(bucket)
        return list(union.values())

    def of_profile(self, profile: str) -> list[QueuedPodInfo[PodT]]:
        """All pods of `profile`, oldest first."""
        return [entry for entry in self._entries.values() if entry.pod.scheduler_name == profile]

    def stale(self, now: float) -> list[QueuedPodInfo[PodT]]:
        """The pods that have waited too long at `now`; they stay here until they are moved or put again."""
        found: list[QueuedPodInfo[PodT]] = []
        while (first := self._stale.first_key()) is not None and first <= now:
            entry = self._stale.pop()
            assert entry is not None
            found.append(entry)
        return found

    def next_stale(self) -> float | None:
        """When the next pod has waited too long, or None when nobody waits."""
        return self._stale.first_key()

    def check_invariants(self) -> None:
        filed: dict[str, set[str]] = {}
        for profile, buckets in self._by_rejector.items():
            for plugin, bucket in buckets.items():
                assert bucket, f"an empty bucket is kept for {profile}/{plugin}"
                for uid, entry in bucket.items():
                    assert self._entries.get(uid) is entry, f"{uid} is filed under {plugin} but not here"
                    assert entry.pod.scheduler_name == profile, f"{uid} is filed under the wrong profile"
                    filed.setdefault(uid, set()).add(plugin)
        for uid, entry in self._entries.items():
            expected = {entry.gating_plugin} if entry.gated else set(entry.rejectors)
            assert filed.pop(uid, None) == expected, f"{uid} is not filed under who refused it"
            assert uid in self._stale, f"{uid} would never be flushed"
            assert (uid in self._gated) == entry.gated, f"{uid} is miscounted as gated"
        assert len(self._stale) == len(self._gated | self._entries.keys()) == len(self._entries)
