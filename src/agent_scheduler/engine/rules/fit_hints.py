"""Whom an event helps that waits for room: the hints and pre-hints of NodeResourcesFit.

When a pod on a node ends, room comes free there, so it helps who fits there now. Where pods of lower priority run, it
may also help who has others evicted: on that node, if the one that ended stood above them, and on any node that is
refused for want of room, where whoever ended was in the way of a rule that looks at other nodes (spreading, affinity, a
volume that one pod may use). What these rules would say is not known here; so all that could preempt somebody hear of
it, but for those whom no node is large enough for.

The ledger is read as it is when a pod is asked about, which may be later than the event. More room than at that time
only comes with another event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from apimachinery.quantity import MAX_INT64

from ..dra.catalogue import Devices
from ..dra.records import DeviceClassInfo
from ..events.events import ActionType, ClusterEvent, Resource
from ..events.hints import ClusterEventWithHint, QueueingHint
from ..events.prehints import ALL_PODS, ANYWAY, AllPods, Amount, ByKeys, Key, Own, PodIndex, UpTo
from ..state.extended import is_extended as may_be_devices
from ..state.interns import BASE_RESOURCES
from ..state.ledger import Ledger
from ..state.nodeinfo import NodeInfo
from ..state.podclass import PODS, PodClass
from ..state.podinfo import PodInfo
from ..state.records import same

#: Dimension under which each pod is filed once.
_RAREST: Final = "rarest"
#: Dimension under which pods that may preempt are filed: by their priority, the highest first.
_PREEMPTING: Final = "preempting"

Room = Mapping[str, int]


class FitHints:
    """Of one plugin. Without a ledger every end of a pod is told to all."""

    def __init__(
        self, wanted: Callable[[PodClass], Room], ledger: Ledger | None, devices: Devices | None
    ) -> None:
        """`wanted`: what the plugin looks at of a pod's requests. `devices`: None where they stand for no resource."""
        self._wanted = wanted
        self._ledger = ledger
        self._devices = devices
        self._by_amount = PodIndex(
            keys_of=self._amounts, shared=lambda pod: (pod.cls, pod.priority, pod.preempts)
        )
        #: What the answers below are true for: a sequence of the ledger, and a node.
        self._read: tuple[int, str] = (-1, "")
        self._free: Room = {}
        self._offered: Room = {}
        #: The most that any node offers, and the sequence for which that is true.
        self._most: tuple[int, Room] = (-1, {})

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(
                ClusterEvent(Resource.ASSIGNED_POD, ActionType.DELETE),
                self._freed,
                ByKeys(self._by_amount, self._freed_for, once=True),
            ),
            ClusterEventWithHint(
                ClusterEvent(Resource.POD, ActionType.UPDATE_POD_SCALE_DOWN),
                _scaled_down,
                ByKeys(self._by_amount, _less_taken),
            ),
            ClusterEventWithHint(
                ClusterEvent(Resource.DEVICE_CLASS, ActionType.ADD | ActionType.UPDATE),
                _by_devices,
                ByKeys(self._by_amount, _resources_of, once=True),
            ),
            ClusterEventWithHint(
                ClusterEvent(Resource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE),
                self._more_room,
                ByKeys(self._by_amount, self._room, once=True),
            ),
        )

    def _amounts(self, pod: PodInfo) -> list[Key]:
        """What the pod wants of each resource, and once more of the one that fewest others want."""
        wanted = self._wanted(pod.cls)
        keys: list[Key] = [Amount(resource, amount) for resource, amount in wanted.items()]
        # A resource of its own tells nodes apart best, then processors and memory; a place for a pod everybody wants.
        rarest = min(wanted, key=lambda each: (each in BASE_RESOURCES, each == PODS, each), default=None)
        keys.append(ANYWAY if rarest is None else Amount((_RAREST, rarest), wanted[rarest]))
        if pod.preempts:
            keys.append(Amount(_PREEMPTING, -pod.priority))
        # Scaling down is read from all that it asks for, ignored or not.
        keys.extend(
            Amount(resource, amount) for resource, amount in pod.requests.items() if resource not in wanted
        )
        return keys

    def _freed(self, pod: object, old: object | None, new: object | None) -> QueueingHint:
        """The hint for the end of `old`."""
        assert isinstance(pod, PodInfo) and isinstance(old, PodInfo)
        ledger = self._ledger
        if ledger is None or not old.node_name:
            # Room that was kept or assumed somewhere: the pod does not say where.
            return QueueingHint.QUEUE
        self._look(ledger, old.node_name)
        wanted = self._wanted(pod.cls)
        devices = self._elsewhere_now(wanted) if pod.cls.extended else ()
        if _fits(wanted, self._free, [each for each in devices if not self._offered.get(each)]):
            return QueueingHint.QUEUE
        may_preempt = pod.preempts and pod.priority > ledger.lowest_priority
        helps = may_preempt and _fits(wanted, self._largest(ledger), devices)
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def _freed_for(self, event: ClusterEvent, old: PodInfo, new: object) -> AllPods | list[Key]:
        """The pre-hint: keys of those whom `_freed` may say yes to."""
        ledger = self._ledger
        if ledger is None or not old.node_name:
            return ALL_PODS
        self._look(ledger, old.node_name)
        keys = self._keys_of_room(self._offered, self._free)
        keys.append(UpTo(_PREEMPTING, -ledger.lowest_priority - 1))
        return keys

    def _look(self, ledger: Ledger, node_name: str) -> None:
        """See what a node offers and has free. One that is gone has nothing."""
        read = (ledger.sequence, node_name)
        if read == self._read:
            return
        columns, row = ledger.columns, ledger.rows.get(node_name)
        self._read, self._free, self._offered = read, {}, {}
        if row is not None:
            names, offers = columns.interns.resources, columns.offers[row]
            self._offered = dict(zip(names, offers, strict=False))
            self._free = {
                name: offered - taken
                for name, offered, taken in zip(names, offers, columns.taken[row], strict=False)
            }

    def _largest(self, ledger: Ledger) -> Room:
        sequence, most = self._most
        if sequence != ledger.sequence:
            columns = ledger.columns
            amounts = columns.allocatable[:, : columns.size].max(axis=1, initial=0).tolist()
            most = dict(zip(columns.interns.resources, amounts, strict=False))
            self._most = ledger.sequence, most
        return most

    def _more_room(self, pod: object, old: object | None, new: object | None) -> QueueingHint:
        """The pod fits the node when empty, and the node is new or offers more of something that is wanted."""
        assert isinstance(pod, PodInfo) and isinstance(new, NodeInfo)
        offered, wanted = new.allocatable, self._wanted(pod.cls)
        elsewhere: set[str] = set()
        if pod.cls.extended:
            elsewhere = {each for each in self._elsewhere_now(wanted) if not offered.get(each)}
        if not _fits(wanted, offered, elsewhere):
            return QueueingHint.SKIP
        if not isinstance(old, NodeInfo):
            return QueueingHint.QUEUE
        before = old.allocatable
        more = any(offered.get(resource, 0) > before.get(resource, 0) for resource in wanted)
        # What the node no longer offers is the matter of devices from now on.
        more = more or any(before.get(resource, 0) for resource in elsewhere)
        return QueueingHint.QUEUE if more else QueueingHint.SKIP

    def _room(self, event: ClusterEvent, old: NodeInfo | None, new: NodeInfo) -> list[Key]:
        """A new node: all that want no more of their rarest resource than it offers. A larger one: those who want some
        of what it has more of, and no more than it offers. Either: those for whom devices may be there instead."""
        offered, before = new.allocatable, {} if old is None else old.allocatable
        if old is None:
            return self._keys_of_room(offered, offered)
        gone = [resource for resource in self._left_to_devices(offered) if before.get(resource)]
        more = [each for each in offered.items() if each[1] > before.get(each[0], 0)]
        return [*(UpTo(resource, MAX_INT64) for resource in gone), *(UpTo(*each) for each in more)]

    def _keys_of_room(self, offered: Mapping[str, int], free: Mapping[str, int]) -> list[Key]:
        """All that want no more of their rarest resource than a node has free, or for whom devices may be there."""
        room = [UpTo((_RAREST, resource), amount) for resource, amount in free.items()]
        return [ANYWAY, *room, *(UpTo(resource, MAX_INT64) for resource in self._left_to_devices(offered))]

    def _left_to_devices(self, offered: Mapping[str, int]) -> list[str]:
        """The resources that devices may stand for on a node that offers these."""
        devices = self._devices
        known = devices.resources() if devices is not None and devices.classes else ()
        return [resource for resource in known if not offered.get(resource)]

    def _elsewhere_now(self, resources: Iterable[str]) -> frozenset[str]:
        return frozenset() if self._devices is None else met_elsewhere(resources, self._devices)


def _fits(wanted: Room, room: Room, elsewhere: Collection[str]) -> bool:
    """Whether there is room for all that is wanted, but for what is the matter of devices."""
    return all(
        amount <= room.get(resource, 0) or resource in elsewhere for resource, amount in wanted.items()
    )


def met_elsewhere(resources: Iterable[str], devices: Devices) -> frozenset[str]:
    """Which of them are the matter of devices where a node offers none."""
    return frozenset(
        each for each in resources if may_be_devices(each) and devices.class_of_resource(each) is not None
    )


def _by_devices(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """Devices stand now for a resource that the pod asks for, or no longer do."""
    assert isinstance(pod, PodInfo) and isinstance(new, DeviceClassInfo)
    before = old if isinstance(old, DeviceClassInfo) else None
    names = new.resources | (before.resources if before is not None else frozenset())
    changed = before is None or not same(new, before)
    return QueueingHint.QUEUE if changed and names & pod.requests.keys() else QueueingHint.SKIP


def _resources_of(event: ClusterEvent, old: DeviceClassInfo | None, new: DeviceClassInfo) -> list[Key]:
    return [UpTo(name, MAX_INT64) for each in (old, new) if each is not None for name in each.resources]


def _less_taken(event: ClusterEvent, old: PodInfo, new: PodInfo) -> list[Key]:
    """Itself, and those who want any of what a pod on a node asks less of."""
    keys: list[Key] = [Own(new.uid)]
    if new.node_name:
        keys.extend(
            UpTo(resource, MAX_INT64)
            for resource, amount in old.requests.items()
            if new.requests.get(resource, 0) < amount
        )
    return keys


def _scaled_down(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """Own requests went down, or another pod on a node asks for less of something that this one wants."""
    assert isinstance(pod, PodInfo) and isinstance(old, PodInfo) and isinstance(new, PodInfo)
    if new.uid == pod.uid:
        return QueueingHint.QUEUE
    if not new.node_name:
        return QueueingHint.SKIP
    wanted = pod.requests
    less = any(
        resource in wanted and new.requests.get(resource, 0) < amount
        for resource, amount in old.requests.items()
    )
    return QueueingHint.QUEUE if less else QueueingHint.SKIP
