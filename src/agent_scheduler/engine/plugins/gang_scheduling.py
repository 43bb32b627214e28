"""GangScheduling: members of a PodGroup wait until the group exists and has its minimum of members (KEP-4671).

The number of members that need a node together is checked when the group is decided (`fastpath.gangs`); waits of
members for that are also under this plugin's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from ..dra.catalogue import Devices
from ..events.events import ActionType, ClusterEvent, Resource
from ..events.hints import ClusterEventWithHint, QueueingHint
from ..events.prehints import ByKeys, PodIndex
from ..framework.plugin import GANG_SCHEDULING
from ..gangs.native import NativeGroup, NativeGroups, native_key
from ..ledger import Ledger
from ..state.batchinfo import GroupKey
from ..state.podinfo import PodInfo

TOO_FEW: Final = "waiting for minCount pods from a gang to appear in scheduling queue"


class GangScheduling:
    """Keeps incomplete gangs from the queue.

    Without `groups` no pod is kept from the queue, and every event of a group wakes its members.
    """

    name = GANG_SCHEDULING
    concerns = attrgetter("batch")

    def __init__(self, groups: NativeGroups | None = None) -> None:
        self._groups = groups

    def seeing(self, ledger: Ledger, devices: Devices, groups: NativeGroups) -> GangScheduling:
        return type(self)(groups)

    def pre_enqueue(self, pod: PodInfo) -> str | None:
        groups, key = self._groups, native_key(pod)
        if groups is None or key is None or groups.has_enough(key):
            return None
        if groups.get(key) is None:
            return f'waiting for pods\'s pod group "{key.name}" to appear in scheduling queue'
        return TOO_FEW

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        pod_added = ByKeys(_BY_GROUP, lambda event, old, new: _keys(native_key(new)), once=True)
        group_changed = ByKeys(_BY_GROUP, lambda event, old, new: _keys(new.key), once=True)
        return (
            ClusterEventWithHint(ClusterEvent(Resource.UNSCHEDULED_POD, ActionType.ADD), self._member_added, pod_added),
            ClusterEventWithHint(ClusterEvent(Resource.ASSIGNED_POD, ActionType.ADD), self._member_added, pod_added),
            ClusterEventWithHint(ClusterEvent(Resource.POD_GROUP, ActionType.ADD), self._group_added, group_changed),
            ClusterEventWithHint(ClusterEvent(Resource.POD_GROUP, ActionType.UPDATE), _fewer_needed, group_changed),
        )

    def _member_added(self, pod: PodInfo, old: object | None, new: object | None) -> QueueingHint:
        assert isinstance(new, PodInfo)
        key = native_key(pod)
        return _queue(key is not None and key == native_key(new) and self._has_enough(key))

    def _group_added(self, pod: PodInfo, old: object | None, new: object | None) -> QueueingHint:
        assert isinstance(new, NativeGroup)
        return _queue(native_key(pod) == new.key and self._has_enough(new.key))

    def _has_enough(self, key: GroupKey) -> bool:
        return self._groups is None or self._groups.has_enough(key)


def _fewer_needed(pod: PodInfo, old: object | None, new: object | None) -> QueueingHint:
    """Return the hint for an updated group. A group recreated without an observed deletion counts as added."""
    assert isinstance(old, NativeGroup) and isinstance(new, NativeGroup)
    return _queue(native_key(pod) == new.key and (new.minimum < old.minimum or new.uid != old.uid))


def _queue(wakes: bool) -> QueueingHint:
    return QueueingHint.QUEUE if wakes else QueueingHint.SKIP


def _keys(key: GroupKey | None) -> tuple[GroupKey, ...]:
    return () if key is None else (key,)


_BY_GROUP: Final = PodIndex(keys_of=lambda pod: _keys(native_key(pod)), shared=native_key)
