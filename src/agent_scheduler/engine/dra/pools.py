"""A pool: the slices that a driver has published of it, and what of its devices is taken.

Only the slices of the newest generation count, and only once all of them are there. What is taken of a device that the
pool no longer has (or does not have yet) is remembered all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .allocation import Use
from .devices import Device, PoolId
from .records import SliceInfo

Counters = dict[tuple[str, str], int]


class Pool:
    """Owner: `PoolIndex`."""

    def __init__(self, pool_id: PoolId) -> None:
        self.id = pool_id
        #: All, by name, of whatever generation.
        self.slices: dict[str, SliceInfo] = {}
        #: Those of the newest generation, by name, but for those that `has_binding_conditions` puts last.
        self.newest: tuple[SliceInfo, ...] = ()
        #: Whether the newest generation is all there.
        self.complete = False
        #: Why nothing of it can be allocated, wherever; empty for a sound pool.
        self.error = ""
        #: Whether it has devices that have to be waited for after they were allocated.
        self.has_binding_conditions = False
        #: Counters that its devices share.
        self.counters: Counters = {}
        #: Device by name, in the newest generation. A name that is given twice is one of them.
        self.devices: dict[str, tuple[Device, SliceInfo]] = {}
        #: Name of a device -> how many have it for themselves; more than one only if others overcommit it.
        self.exclusive: dict[str, int] = {}
        #: Name of a shared device -> how many use it.
        self.shares: dict[str, int] = {}
        #: Name of a shared device -> capacity -> billionths in use.
        self.consumed: dict[str, dict[str, int]] = {}
        #: What devices in use take of the counters; None when it has to be counted anew.
        self._counters_used: Counters | None = None
        #: The nodes that can have anything of it; None if these are not known by name.
        self.node_names: frozenset[str] | None = frozenset()

    def __bool__(self) -> bool:
        """Whether there is anything to remember of it."""
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
        """The nodes that see it when a device is taken or given back; None if these are not known by name."""
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
        """Whether a use that is counted here is the only one of its device, which is published, in a pool without
        counters."""
        name = use.id.device
        plain = not use.shared and not self.counters and name in self.devices
        return plain and self.exclusive.get(name) == 1 and name not in self.shares

    @property
    def counters_used(self) -> Counters:
        """What devices in use take of the counters."""
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
        """Whether these devices, each named once and published, leave no counter overdrawn if all are taken. One that
        others share already takes nothing more."""
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
