"""A pool: the slices that a driver has published for it, and the uses of its devices.

Only the slices of the newest generation count, and only once that is complete. Uses of devices that the pool no longer
has (or does not have yet) are kept nevertheless.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .allocation import Use
from .devices import DeviceInfo, PoolId
from .records import SliceInfo

Counters = dict[tuple[str, str], int]


class Pool:
    """One pool. Owned by `PoolIndex`."""

    def __init__(self, pool_id: PoolId) -> None:
        self.id = pool_id
        #: All slices by name, of any generation.
        self.slices: dict[str, SliceInfo] = {}
        #: The slices of the newest generation by name, those with binding conditions last.
        self.newest: tuple[SliceInfo, ...] = ()
        #: Whether the newest generation is complete.
        self.complete = False
        #: The reason why nothing of it can be allocated on any node; empty for a valid pool.
        self.error = ""
        #: Whether it has devices with binding conditions.
        self.has_binding_conditions = False
        #: Counters that its devices share.
        self.counters: Counters = {}
        #: Devices of the newest generation by name. Of duplicate names it has one device.
        self.devices: dict[str, tuple[DeviceInfo, SliceInfo]] = {}
        #: Name of a device -> number of exclusive uses; more than one only if other clients overcommit it.
        self.exclusive: dict[str, int] = {}
        #: Name of a shared device -> number of its uses.
        self.shares: dict[str, int] = {}
        #: Name of a shared device -> capacity -> billionths in use.
        self.consumed: dict[str, dict[str, int]] = {}
        #: The counters taken by devices in use; None if they have to be counted again.
        self._counters_used: Counters | None = None
        #: The nodes that can reach any of it; None if their names are unknown.
        self.node_names: frozenset[str] | None = frozenset()

    def __bool__(self) -> bool:
        """Return whether the pool has any slice or use."""
        return bool(self.slices or self.exclusive or self.shares)

    # ---- slices

    def put(self, each: SliceInfo) -> None:
        self.slices[each.name] = each
        self._review()

    def drop(self, name: str) -> None:
        del self.slices[name]
        self._review()

    def _review(self) -> None:
        newest = max((each.generation for each in self.slices.values()), default=0)
        self.newest = tuple(
            sorted(
                (each for each in self.slices.values() if each.generation == newest),
                key=lambda each: (each.has_binding_conditions, each.name),
            )
        )
        self.has_binding_conditions = any(each.has_binding_conditions for each in self.newest)
        self.complete = bool(self.newest) and len(self.newest) == self.newest[0].count
        self.devices = {device.name: (device, each) for each in self.newest for device in each.devices}
        self.counters = {key: value for each in self.newest for key, value in each.counters.items()}
        self.error = next(_faults(self.newest, self.counters), "")
        self._counters_used = None
        self.node_names = _names(self.slices.values())

    def concerned(self, device_name: str) -> frozenset[str] | None:
        """Return the nodes that a use of a device affects; None if their names are unknown."""
        found = self.devices.get(device_name)
        if found is None:
            return frozenset()
        device, each = found
        place = device.place or each.place
        if place.node_name and not device.consumes:
            return frozenset((place.node_name,))
        return self.node_names

    # ---- what is taken

    def take(self, use: Use) -> None:
        name = use.id.device
        if use.shared:
            self.shares[name] = self.shares.get(name, 0) + 1
            consumed = self.consumed.setdefault(name, {})
            for capacity, size in use.consumed:
                consumed[capacity] = consumed.get(capacity, 0) + size
        else:
            self.exclusive[name] = self.exclusive.get(name, 0) + 1
        self._counters_used = None

    def give_back(self, use: Use) -> None:
        name = use.id.device
        if use.shared:
            _less(self.shares, name)
            consumed = self.consumed[name]
            for capacity, size in use.consumed:
                consumed[capacity] -= size
            if name not in self.shares:
                del self.consumed[name]
        else:
            _less(self.exclusive, name)
        self._counters_used = None

    def is_mine_alone(self, use: Use) -> bool:
        """Return whether a counted use is the only one of its published device, in a pool without counters."""
        name = use.id.device
        plain = not use.shared and not self.counters and name in self.devices
        return plain and self.exclusive.get(name) == 1 and name not in self.shares

    @property
    def counters_used(self) -> Counters:
        """The counters taken by devices in use."""
        used = self._counters_used
        if used is None:
            used = self._counters_used = {}
            if self.counters:
                for name in self.exclusive.keys() | self.shares.keys():
                    if name in self.devices:
                        for counter, size in self.devices[name][0].consumes:
                            used[counter] = used.get(counter, 0) + size
        return used

    def counters_suffice(self, device_names: Iterable[str]) -> bool:
        """Return whether the counters suffice if all of these distinct, published devices are taken.

        A shared device in use takes nothing more.
        """
        if not self.counters:
            return True
        used = dict(self.counters_used)
        for name in device_names:
            if name in self.shares:
                continue
            for counter, size in self.devices[name][0].consumes:
                used[counter] = used.get(counter, 0) + size
                if used[counter] > self.counters.get(counter, 0):
                    return False
        return True


def _less(counts: dict[str, int], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]


def _names(slices: Iterable[SliceInfo]) -> frozenset[str] | None:
    names = set()
    for each in slices:
        if each.place.node_name:
            names.add(each.place.node_name)
        elif each.place.everywhere or each.place.reach is not None or each.error:
            return None
        else:
            for device in each.devices:
                if device.place is None:
                    continue
                if not device.place.node_name:
                    return None
                names.add(device.place.node_name)
    return frozenset(names)


def _faults(slices: Sequence[SliceInfo], counters: Counters) -> Iterator[str]:
    sets: set[str] = set()
    for each in slices:
        if each.error:
            yield f"resource slice {each.name}: {each.error}"
        for name in each.counter_sets:
            if name in sets:
                yield f"duplicate counter set name {name}"
            sets.add(name)
    for each in slices:
        for device in each.devices:
            for (name, counter), _ in device.consumes:
                if name not in sets:
                    yield f"counter set {name} not found"
                elif (name, counter) not in counters:
                    yield f"counter {counter} not found in counter set {name}"
