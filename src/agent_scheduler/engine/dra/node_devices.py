"""The device slots of a node: devices of the pools that it can reach, in the order in which a search tries them.

The order is by driver, pool, slice and position in the slice, so that a driver's names can express a preference. Pools
and slices with devices that have binding conditions come after the others. Slots of one `kind` are equal for every
request, so a search that failed with one need not try another.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from agent_scheduler.objects.wire import NodeSelectorTerm

from ..state.nodeinfo import NodeInfo
from ..state.nodeselection import reaches
from .catalogue import Devices
from .devices import DeviceId, DeviceInfo, DeviceLocation, PoolId
from .plans import asked
from .pools import Pool
from .records import NOWHERE, SliceInfo

#: A pool and one of its counters.
CounterKey = tuple[PoolId, tuple[str, str]]
NO_COUNTERS: Final[Mapping[CounterKey, int]] = {}


class DeviceSlot:
    """A device that the node can reach. `kind` is negative for a device without equals."""

    __slots__ = ("device", "facts", "id", "kind", "name", "place", "pool")

    def __init__(self, device: DeviceInfo, pool: Pool, place: DeviceLocation, kind: int) -> None:
        self.device = device
        self.facts = device.facts
        self.name = device.name
        self.pool = pool
        self.place = place
        self.id = DeviceId(*pool.id, device.name)
        self.kind = kind

    @property
    def is_open(self) -> bool:
        """Whether it is not allocated exclusively, nor in use at all unless it is a shared device."""
        pool, name = self.pool, self.name
        return name not in pool.exclusive and (self.facts.shared or name not in pool.shares)

    @property
    def terms(self) -> Sequence[NodeSelectorTerm]:
        """The terms of the node selector of its place."""
        reach = self.place.reach
        return (reach.selector.node_selector_terms if reach is not None else None) or ()

    @property
    def is_bound(self) -> bool:
        """Whether a claim that gets it can be used only on the node for which it was found.

        Several terms have the same effect: the API server rejects such slices, and no single term can express them.
        """
        return bool(self.place.node_name) or self.device.binds_to_node or len(self.terms) > 1

    def has_counters(self, taken: Mapping[CounterKey, int] = NO_COUNTERS) -> bool:
        """Return whether enough of its counters is left beside `taken`, or already in use for a shared device."""
        pool = self.pool
        if not self.device.consumes or (self.facts.shared and self.name in pool.shares):
            return True
        used, there, key = pool.counters_used, pool.counters, pool.id
        return all(
            size + used.get(counter, 0) + taken.get((key, counter), 0) <= there.get(counter, 0)
            for counter, size in self.device.consumes
        )


@dataclass(slots=True, weakref_slot=True, eq=False)
class NodeDevices:
    """The slots of a node. Nodes that reach the same devices, none of them in a pool of their own, share one."""

    slots: tuple[DeviceSlot, ...]
    #: Pools from which nothing can be allocated now: (pool, reason); the reason of an incomplete one is empty.
    unusable: tuple[tuple[PoolId, str], ...]
    #: Whether other nodes may share it, so that an answer about it applies to all of them.
    shared: bool

    def open(self) -> Iterator[int]:
        """Yield the indices of the open slots. No device may be allocated or freed between two of them."""
        return (index for index, slot in enumerate(self.slots) if slot.is_open)


class _CachedDevices(NamedTuple):
    """Slots of a node; valid for this stamp of published slices and these labels of the node."""

    stamp: tuple[int, int]
    labels: Mapping[str, str]
    devices: NodeDevices


def devices_of(devices: Devices, node: NodeInfo) -> NodeDevices:
    """Return the device slots of a node, cached until its labels or slices that concern it change."""
    stamp = devices.pools.slice_stamp(node.name)
    found: _CachedDevices | None = devices.node_devices.get(node.name)
    if found is not None and found.stamp == stamp and (found.labels is node.labels or found.labels == node.labels):
        return found.devices
    there = _devices_of(devices, node)
    if not devices.pools.has_own(node.name) and not any(slot.is_bound for slot in there.slots):
        # Devices are identified by their objects, which live as long as this is kept.
        same = (tuple((id(slot.device), slot.pool.id) for slot in there.slots), there.unusable)
        there = devices.pools.shared_node_devices.setdefault(same, NodeDevices(there.slots, there.unusable, True))
    devices.node_devices[node.name] = _CachedDevices(stamp, node.labels, there)
    return there


def _devices_of(devices: Devices, node: NodeInfo) -> NodeDevices:
    slots: list[DeviceSlot] = []
    later: list[DeviceSlot] = []
    unusable: list[tuple[PoolId, str]] = []
    kinds: dict[Hashable, int] = {}
    for pool in devices.pools.of(node.name):
        here = list(_visible(pool.newest, node))
        if not here and not any(_sees(each, node) for each in pool.newest):
            continue
        if not pool.complete:
            unusable.append((pool.id, ""))
        elif pool.error or (twice := _named_twice(device for device, _ in here)):
            unusable.append((pool.id, pool.error or f"duplicate device name {twice}"))
        else:
            found = [DeviceSlot(device, pool, place, _kind(device, pool, kinds)) for device, place in here]
            (later if pool.has_binding_conditions else slots).extend(found)
    return NodeDevices((*slots, *later), tuple(unusable), False)


def is_on(place: DeviceLocation, node: NodeInfo) -> bool:
    if place.node_name:
        return place.node_name == node.name
    return place.everywhere or (place.reach is not None and reaches(place.reach, node))


def _visible(slices: Iterable[SliceInfo], node: NodeInfo) -> Iterator[tuple[DeviceInfo, DeviceLocation]]:
    for each in slices:
        if each.place is not NOWHERE and each.place != NOWHERE:
            if is_on(each.place, node):
                for device in each.devices:
                    yield device, each.place
            continue
        for device in each.devices:
            if device.place is not None and is_on(device.place, node):
                yield device, device.place


def _sees(each: SliceInfo, node: NodeInfo) -> bool:
    """Return whether a slice without a device for the node may concern it nevertheless."""
    return is_on(each.place, node) or bool(each.error and each.place == NOWHERE)


def _named_twice(devices: Iterable[DeviceInfo]) -> str:
    names = set()
    for device in devices:
        if device.name in names:
            return device.name
        names.add(device.name)
    return ""


def _kind(device: DeviceInfo, pool: Pool, kinds: dict[Hashable, int]) -> int:
    if device.facts.shared:
        # The amounts in use distinguish it from others.
        return -1
    key = (device.facts, device.taints, device.consumes, pool.id if device.consumes else None)
    return kinds.setdefault(key, len(kinds))


class Totals(NamedTuple):
    """Devices of the resource's class for the node, and the allocated ones among them."""

    offered: int
    taken: int


NOTHING = Totals(0, 0)


def totals(resource: str, devices: Devices, node: NodeInfo) -> Totals:
    """Return the number of devices of an extended resource's class for the node, as scores count them (KEP-5004).

    Counts all slices, whatever their generation, and whether or not the pool is complete. Zero if a selector of the
    class cannot be evaluated.
    """
    found = devices.class_of_resource(resource)
    if found is None:
        return NOTHING
    offered = taken = 0
    for pool in devices.pools.of(node.name):
        for device, _ in _visible(pool.slices.values(), node):
            matches = asked(found.selectors, device.facts)
            if not isinstance(matches, bool):
                return NOTHING
            offered += matches
            taken += matches and (device.name in pool.exclusive or device.name in pool.shares)
    return Totals(offered, taken)
