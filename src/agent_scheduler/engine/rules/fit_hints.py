"""The pods that an event helps which wait for room: the hints and pre-hints of NodeResourcesFit.

The end of a pod on a node frees room there, so it helps pods that fit now. If pods of lower priority run, it may also
help pods that preempt: on that node, if the ended pod had a higher priority, and on any node without room where the
ended pod was an obstacle for a rule about other nodes (spreading, affinity, a volume for one pod). The answers of these
rules are unknown here; so all pods that could preempt are queued, except those for which no node is large enough.

The ledger is read when a pod is asked, which may be later than the event. More room than at that time implies another
event.
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
from ..ledger import Ledger
from ..state.extended import is_extended as may_be_devices
from ..state.interns import BASE_RESOURCES
from ..state.nodeinfo import NodeInfo
from ..state.podclass import PODS, PodClass
from ..state.podinfo import PodInfo
from ..state.records import same

#: Dimension under which each pod has one key.
_RAREST: Final = "rarest"
#: Dimension of pods that may preempt: by their priority, the highest first.
_PREEMPTING: Final = "preempting"

Room = Mapping[str, int]


class FitHints:
    """The hints of one plugin. Without a ledger every end of a pod wakes all."""

    def __init__(self, wanted: Callable[[PodClass], Room], ledger: Ledger | None, devices: Devices | None) -> None:
        """Create the hints; `wanted` returns the requests that the plugin checks.

        `devices` is None if devices provide no resource.
        """
        self._wanted = wanted
        self._ledger = ledger
        self._devices = devices
        self._by_amount = PodIndex(keys_of=self._amounts, shared=lambda pod: (pod.cls, pod.priority, pod.preempts))
        #: The sequence of the ledger and the node that the answers below hold for.
        self._read: tuple[int, str] = (-1, "")
        self._free: Room = {}
        self._offered: Room = {}
        #: The largest amounts that any node offers, and the sequence that they hold for.
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
        """Return the amount of each requested resource, and again that of the rarest one."""
        wanted = self._wanted(pod.cls)
        keys: list[Key] = [Amount(resource, amount) for resource, amount in wanted.items()]
        # An uncommon resource is the most selective, then CPU and memory; every pod requests a place for a pod.
        rarest = min(wanted, key=lambda each: (each in BASE_RESOURCES, each == PODS, each), default=None)
        keys.append(ANYWAY if rarest is None else Amount((_RAREST, rarest), wanted[rarest]))
        if pod.preempts:
            keys.append(Amount(_PREEMPTING, -pod.priority))
        # Scaling down reads all requests, including ignored ones.
        keys.extend(Amount(resource, amount) for resource, amount in pod.requests.items() if resource not in wanted)
        return keys

    def _freed(self, pod: object, old: object | None, new: object | None) -> QueueingHint:
        """Evaluate the end of `old`."""
        assert isinstance(pod, PodInfo) and isinstance(old, PodInfo)
        ledger = self._ledger
        if ledger is None or not old.node_name:
            # Reserved or assumed room: the pod does not name the node.
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
        """Return the keys of the pods that `_freed` may queue."""
        ledger = self._ledger
        if ledger is None or not old.node_name:
            return ALL_PODS
        self._look(ledger, old.node_name)
        keys = self._keys_of_room(self._offered, self._free)
        keys.append(UpTo(_PREEMPTING, -ledger.lowest_priority - 1))
        return keys

    def _look(self, ledger: Ledger, node_name: str) -> None:
        """Read the offered and free amounts of a node. A deleted node has none."""
        read = (ledger.sequence, node_name)
        if read == self._read:
            return
        columns, row = ledger.columns, ledger.rows.get(node_name)
        self._read, self._free, self._offered = read, {}, {}
        if row is not None:
            names, offers = columns.interns.resources, columns.offers[row]
            self._offered = dict(zip(names, offers, strict=False))
            self._free = {
                name: offered - taken for name, offered, taken in zip(names, offers, columns.taken[row], strict=False)
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
        """Queue the pod if it fits the empty node, and the node is new or offers more of a requested resource."""
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
        # From now on devices have to provide what the node no longer offers.
        more = more or any(before.get(resource, 0) for resource in elsewhere)
        return QueueingHint.QUEUE if more else QueueingHint.SKIP

    def _room(self, event: ClusterEvent, old: NodeInfo | None, new: NodeInfo) -> list[Key]:
        """Return the keys of pods that a new or changed node may help.

        For a new node, pods whose request of their rarest resource is at most its offer. For a larger one, pods that
        request a grown resource up to the new amount. For either, pods whose resources devices may provide there.
        """
        offered, before = new.allocatable, {} if old is None else old.allocatable
        if old is None:
            return self._keys_of_room(offered, offered)
        gone = [resource for resource in self._left_to_devices(offered) if before.get(resource)]
        more = [each for each in offered.items() if each[1] > before.get(each[0], 0)]
        return [*(UpTo(resource, MAX_INT64) for resource in gone), *(UpTo(*each) for each in more)]

    def _keys_of_room(self, offered: Mapping[str, int], free: Mapping[str, int]) -> list[Key]:
        """Return the keys of pods whose rarest resource fits the free amounts, or may be provided by devices."""
        room = [UpTo((_RAREST, resource), amount) for resource, amount in free.items()]
        return [ANYWAY, *room, *(UpTo(resource, MAX_INT64) for resource in self._left_to_devices(offered))]

    def _left_to_devices(self, offered: Mapping[str, int]) -> list[str]:
        """Return the resources that devices may provide on a node with these offers."""
        devices = self._devices
        known = devices.resources() if devices is not None and devices.classes else ()
        return [resource for resource in known if not offered.get(resource)]

    def _elsewhere_now(self, resources: Iterable[str]) -> frozenset[str]:
        return frozenset() if self._devices is None else met_elsewhere(resources, self._devices)


def _fits(wanted: Room, room: Room, elsewhere: Collection[str]) -> bool:
    """Return whether there is room for all requests, except those `elsewhere`."""
    return all(amount <= room.get(resource, 0) or resource in elsewhere for resource, amount in wanted.items())


def met_elsewhere(resources: Iterable[str], devices: Devices) -> frozenset[str]:
    """Return the resources that devices provide where a node offers none."""
    return frozenset(each for each in resources if may_be_devices(each) and devices.class_of_resource(each) is not None)


def _by_devices(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """Queue the pod if devices now provide a resource that it requests, or no longer do."""
    assert isinstance(pod, PodInfo) and isinstance(new, DeviceClassInfo)
    before = old if isinstance(old, DeviceClassInfo) else None
    names = new.resources | (before.resources if before is not None else frozenset())
    changed = before is None or not same(new, before)
    return QueueingHint.QUEUE if changed and names & pod.requests.keys() else QueueingHint.SKIP


def _resources_of(event: ClusterEvent, old: DeviceClassInfo | None, new: DeviceClassInfo) -> list[Key]:
    return [UpTo(name, MAX_INT64) for each in (old, new) if each is not None for name in each.resources]


def _less_taken(event: ClusterEvent, old: PodInfo, new: PodInfo) -> list[Key]:
    """Return the keys of the pod and of pods that request a resource of which an assigned pod now requests less."""
    keys: list[Key] = [Own(new.uid)]
    if new.node_name:
        keys.extend(
            UpTo(resource, MAX_INT64)
            for resource, amount in old.requests.items()
            if new.requests.get(resource, 0) < amount
        )
    return keys


def _scaled_down(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """Queue the pod if its own requests shrank, or an assigned pod now requests less of a resource that it requests."""
    assert isinstance(pod, PodInfo) and isinstance(old, PodInfo) and isinstance(new, PodInfo)
    if new.uid == pod.uid:
        return QueueingHint.QUEUE
    if not new.node_name:
        return QueueingHint.SKIP
    wanted = pod.requests
    less = any(
        resource in wanted and new.requests.get(resource, 0) < amount for resource, amount in old.requests.items()
    )
    return QueueingHint.QUEUE if less else QueueingHint.SKIP
