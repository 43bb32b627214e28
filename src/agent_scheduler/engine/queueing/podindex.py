"""The index of the pods of one profile that one plugin refused, as `prehints.PodIndex` describes it.

Pods that share what their keys are made of are one `Group`: ten thousand of a class cost an event as much as one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic

from msgspec import Struct
from sortedcontainers import SortedDict

from ..events.prehints import Amount, Key, Own, PodIndex, UpTo
from .entry import PodT, QueuedPodInfo


class Group(Struct, Generic[PodT], eq=False, gc=False):
    """Pods with the same keys; never empty while it is in an index. `gc=False`: nothing in it leads back to it."""

    shared: Hashable
    keys: tuple[Key, ...]
    members: dict[str, QueuedPodInfo[PodT]]


class _Alone(Struct, frozen=True):
    """What a pod is filed under that shares its place with no other."""

    uid: str


class RefusedIndex(Generic[PodT]):
    """Owner of the groups of one index.

    Invariants: a pod is in one group, which is filed under each of its keys and nowhere else; a pod whose keys could
    not be made out is in a group of its own that every search gives out.
    """

    __slots__ = ("_by_amount", "_by_key", "_complain", "_group_of", "_keyless", "groups", "spec")

    def __init__(self, spec: PodIndex, complain: Callable[[Exception], None]) -> None:
        """`complain` is told what the plugin's own functions raised."""
        self.spec = spec
        self._complain = complain
        self.groups: dict[Hashable, Group[PodT]] = {}
        self._group_of: dict[str, Group[PodT]] = {}
        self._by_key: dict[Key, dict[Hashable, Group[PodT]]] = {}
        #: dimension -> amount -> groups.
        self._by_amount: dict[Hashable, SortedDict] = {}
        self._keyless: dict[Hashable, Group[PodT]] = {}

    def add(self, entry: QueuedPodInfo[PodT]) -> None:
        """`entry` is here from now on; it must not be yet."""
        spec, uid = self.spec, entry.uid
        try:
            shared: Hashable = _Alone(uid) if spec.shared is None else spec.shared(entry.pod)
            group = self.groups.get(shared)
            if group is None:
                group = Group(shared, tuple(spec.keys_of(entry.pod)), {})
                self._file(group)
        except Exception as error:
            # A plugin's bug must not hide a pod from the events that it waits for.
            self._complain(error)
            alone = _Alone(uid)
            group = self._keyless[alone] = self.groups[alone] = Group(alone, (), {})
        group.members[uid] = entry
        self._group_of[uid] = group

    def remove(self, uid: str) -> None:
        group = self._group_of.pop(uid)
        del group.members[uid]
        if not group.members:
            self._drop(group)

    def update(self, entry: QueuedPodInfo[PodT]) -> None:
        """`entry`, which is here, has another version of its pod."""
        spec = self.spec
        if spec.shared is not None:
            try:
                if spec.shared(entry.pod) == self._group_of[entry.uid].shared:
                    return
            except Exception as error:
                self._complain(error)
        self.remove(entry.uid)
        self.add(entry)

    def strayed(self, group: Group[PodT]) -> list[QueuedPodInfo[PodT]]:
        """Those of its pods, as far as they come first, that belong elsewhere by now: whoever is left may speak for it.

        Of those behind them, which are not looked at, an event of their own tells: what changed was an object.
        """
        found: list[QueuedPodInfo[PodT]] = []
        shared = self.spec.shared
        if shared is None:
            return found
        for entry in group.members.values():
            try:
                if shared(entry.pod) == group.shared:
                    break
            except Exception as error:
                self._complain(error)
            found.append(entry)
        return found

    def find(self, keys: Iterable[Key]) -> Iterable[Group[PodT]]:
        """The groups that have one of `keys`, each once. Raises TypeError for a key that cannot be hashed."""
        found: dict[Hashable, Group[PodT]] = dict(self._keyless)
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

    def _file(self, group: Group[PodT]) -> None:
        hash(group.keys)  # what cannot be hashed is found out before any of it is filed
        for key in group.keys:
            if type(key) is Amount:
                levels = self._by_amount.setdefault(key.dimension, SortedDict())
                levels.setdefault(key.amount, {})[group.shared] = group
            else:
                self._by_key.setdefault(key, {})[group.shared] = group
        self.groups[group.shared] = group

    def _drop(self, group: Group[PodT]) -> None:
        shared = group.shared
        del self.groups[shared]
        self._keyless.pop(shared, None)
        # A key may be named twice.
        for key in dict.fromkeys(group.keys):
            if type(key) is Amount:
                levels = self._by_amount[key.dimension]
                _discard(levels, key.amount, shared)
                if not levels:
                    del self._by_amount[key.dimension]
            else:
                _discard(self._by_key, key, shared)

    def check_invariants(self, entries: dict[str, QueuedPodInfo[PodT]]) -> None:
        """`entries`: who has to be here."""
        assert self._group_of.keys() == entries.keys(), "the index and the pool have other pods"
        members = {uid: group for group in self.groups.values() for uid in group.members}
        assert members.keys() == entries.keys(), "a pod is in no group"
        for uid, group in members.items():
            assert self._group_of[uid] is group and group.members[uid] is entries[uid], (
                f"{uid} is in another group"
            )
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
            assert self._group_of[uid].shared == self.spec.shared(entry.pod), f"{uid} has other keys by now"


def _discard(filed: dict[Hashable, dict[Hashable, Group[PodT]]], key: Key, shared: Hashable) -> None:
    groups = filed[key]
    del groups[shared]
    if not groups:
        del filed[key]
