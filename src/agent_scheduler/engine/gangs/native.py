"""Kubernetes' own PodGroups (scheduling.k8s.io, KEP-4671) in their last known state, and their member pods.

The members of a group are known from the pods alone: they name the group, which may be created later, or never.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from agent_scheduler.objects.batch import NativePodGroup
from agent_scheduler.objects.wire import Metadata

from ..state.batchinfo import GroupKey
from ..state.podinfo import PodInfo
from .group import effective_minimum, of_native

#: The condition that the scheduler keeps on a group, and its messages.
POD_GROUP_SCHEDULED: Final = "PodGroupScheduled"
UNSCHEDULABLE: Final = "pod group is unschedulable"
PREEMPTING: Final = f"{UNSCHEDULABLE}, pod group is waiting for preemption to complete"

_NOBODY: Final[Mapping[str, PodInfo]] = MappingProxyType({})


class NativeGroup:
    """One PodGroup at one resourceVersion."""

    __slots__ = ("condition", "key", "minimum", "object")

    def __init__(self, found: NativePodGroup) -> None:
        group, conditions = of_native(found), found.status.conditions or ()
        self.object: Final = found
        self.key: Final = group.key
        #: Members that must have a node before any is bound.
        self.minimum: Final = effective_minimum(group)[0]
        #: PodGroupScheduled according to the API server, or None.
        self.condition: Final = next((each for each in conditions if each.type == POD_GROUP_SCHEDULED), None)

    @property
    def metadata(self) -> Metadata:
        return self.object.metadata

    @property
    def uid(self) -> str:
        return self.object.metadata.uid


def native_key(pod: PodInfo) -> GroupKey | None:
    """Return the native group that a pod names; None for most pods."""
    group = pod.group
    return group if group is not None and group.native else None


class NativeGroups:
    """Owns the groups and their members.

    Invariant: `members` has exactly the pods that exist, are not finished and name the group, at their last version.
    """

    def __init__(self) -> None:
        self._groups: dict[GroupKey, NativeGroup] = {}
        self._members: dict[GroupKey, dict[str, PodInfo]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def get(self, key: GroupKey) -> NativeGroup | None:
        return self._groups.get(key)

    def set(self, group: NativeGroup) -> bool:
        """Store a group. Return whether the change affects decisions; a written condition does not."""
        old = self._groups.get(group.key)
        self._groups[group.key] = group
        return old is None or (old.uid, old.minimum) != (group.uid, group.minimum)

    def delete(self, group: NativeGroup) -> None:
        """Delete the group unless another one has its name by now."""
        known = self._groups.get(group.key)
        if known is not None and known.uid == group.uid:
            del self._groups[group.key]

    def members(self, key: GroupKey) -> Mapping[str, PodInfo]:
        """Return the members by UID. Read only."""
        return self._members.get(key, _NOBODY)

    def see(self, pod: PodInfo) -> bool:
        """Store an added or changed pod. Return whether it is a new member."""
        key = native_key(pod)
        if key is None:
            return False
        members = self._members.setdefault(key, {})
        new = pod.uid not in members
        members[pod.uid] = pod
        return new

    def drop(self, pod: PodInfo) -> None:
        """Remove a deleted or finished pod."""
        key = native_key(pod)
        members = self._members.get(key) if key is not None else None
        if key is not None and members is not None and members.pop(pod.uid, None) is not None and not members:
            del self._members[key]

    def has_enough(self, key: GroupKey) -> bool:
        """Return whether the group exists and has at least its minimum of members, including bound and gated ones."""
        group = self._groups.get(key)
        return group is not None and len(self.members(key)) >= group.minimum
