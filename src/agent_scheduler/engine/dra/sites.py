"""What of the pools a node can have: its seats, in the order in which they are tried.

The order is by driver, pool, slice and place in the slice, so that a driver can say by its names what is to be taken
first. Pools, and slices of a pool, with devices that have to be waited for (binding conditions) come after the others.
A seat has a `kind`: seats of one kind are the same to every request, so a search that failed with one need not try
another.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple

from ..state.nodeinfo import NodeInfo
from ..state.nodeselection import reaches
from .catalogue import Devices
from .devices import Device, DeviceId, Place, PoolId
from .pools import Pool
from .records import NOWHERE, SliceInfo


class Seat:
    """A device that the node can have. `kind` is negative for a device that is like no other."""

    __slots__ = ("device", "facts", "id", "kind", "name", "place", "pool")

    def __init__(self, device: Device, pool: Pool, place: Place, kind: int) -> None:
        self.device = device
        self.facts = device.facts
        self.name = device.name
        self.pool = pool
        self.place = place
        self.id = DeviceId(*pool.id, device.name)
        self.kind = kind

    @property
    def is_open(self) -> bool:
        """Whether somebody might have it, as far as others leave it to him."""
        pool, name = self.pool, self.name
        return name not in pool.exclusive and (self.facts.shared or name not in pool.shares)

    @property
    def has_counters(self) -> bool:
        """Whether enough of its counters is left, or in use for it already by others who share it."""
        pool = self.pool
        if not self.device.consumes or (self.facts.shared and self.name in pool.shares):
            return True
        used, there = pool.counters_used, pool.counters
        return all(
            size + used.get(counter, 0) <= there.get(counter, 0) for counter, size in self.device.consumes
        )


class Site:
    """What a node sees. Nodes that see the same of pools that are nobody's own share one."""

    __slots__ = ("__weakref__", "_open", "_open_at", "_pools", "seats", "shared", "troubles")

    def __init__(
        self, seats: tuple[Seat, ...], troubles: tuple[tuple[PoolId, str], ...], shared: bool
    ) -> None:
        self.seats = seats
        #: Pools that nothing can be had of for now: (pool, why), where an empty text is for one that is incomplete.
        self.troubles = troubles
        #: Whether other nodes may have it, so that an answer about it is one about all of them.
        self.shared = shared
        self._pools = tuple({seat.pool.id: seat.pool for seat in seats}.values())
        self._open: tuple[int, ...] = ()
        self._open_at: tuple[int, ...] | None = None

    @property
    def open(self) -> tuple[int, ...]:
        """The seats that nobody has for himself, by their index. Kept until something is taken or given back."""
        at = tuple([pool.changes for pool in self._pools])
        if at != self._open_at:
            self._open_at = at
            self._open = tuple([index for index, seat in enumerate(self.seats) if seat.is_open])
        return self._open


class _Known(NamedTuple):
    """A node's site, for as long as nothing is published anew and its labels stay."""

    stamp: tuple[int, int]
    labels: Mapping[str, str]
    site: Site


def site_of(devices: Devices, node: NodeInfo) -> Site:
    """Kept until it changes."""
    stamp = devices.slice_stamp(node.name)
    found: _Known | None = devices.sites.get(node.name)
    if (
        found is not None
        and found.stamp == stamp
        and (found.labels is node.labels or found.labels == node.labels)
    ):
        return found.site
    site = _site(devices, node)
    if not devices.has_own(node.name) and not any(_is_bound(seat) for seat in site.seats):
        # Devices are known by their objects, which live as long as this is kept.
        same = (tuple((id(seat.device), seat.pool.id) for seat in site.seats), site.troubles)
        site = devices.shared_sites.setdefault(same, Site(site.seats, site.troubles, True))
    devices.sites[node.name] = _Known(stamp, node.labels, site)
    return site


def _is_bound(seat: Seat) -> bool:
    """Whether a claim that gets it can be used on the node alone for which it was found."""
    terms = seat.place.reach.selector.node_selector_terms if seat.place.reach is not None else ()
    return bool(seat.place.node_name) or seat.device.binds_to_node or len(terms or ()) > 1


def _site(devices: Devices, node: NodeInfo) -> Site:
    seats: list[Seat] = []
    later: list[Seat] = []
    troubles: list[tuple[PoolId, str]] = []
    kinds: dict[Hashable, int] = {}
    for pool in devices.pools_of(node.name):
        here = list(_visible(pool, node))
        if not here and not any(_sees(each, node) for each in pool.newest):
            continue
        if not pool.complete:
            troubles.append((pool.id, ""))
        elif pool.error or (twice := _named_twice(device for device, _ in here)):
            troubles.append((pool.id, pool.error or f"duplicate device name {twice}"))
        else:
            found = [Seat(device, pool, place, _kind(device, pool, kinds)) for device, place in here]
            (later if pool.is_bound_late else seats).extend(found)
    return Site((*seats, *later), tuple(troubles), False)


def is_on(place: Place, node: NodeInfo) -> bool:
    if place.node_name:
        return place.node_name == node.name
    return place.everywhere or (place.reach is not None and reaches(place.reach, node))


def _visible(pool: Pool, node: NodeInfo) -> Iterator[tuple[Device, Place]]:
    for each in pool.newest:
        if each.place is not NOWHERE and each.place != NOWHERE:
            if is_on(each.place, node):
                for device in each.devices:
                    yield device, each.place
            continue
        for device in each.devices:
            if device.place is not None and is_on(device.place, node):
                yield device, device.place


def _sees(each: SliceInfo, node: NodeInfo) -> bool:
    """Whether a slice that has no device for the node concerns it all the same, or might, as far as it can be read."""
    return is_on(each.place, node) or bool(each.error and each.place == NOWHERE)


def _named_twice(devices: Iterable[Device]) -> str:
    names = set()
    for device in devices:
        if device.name in names:
            return device.name
        names.add(device.name)
    return ""


def _kind(device: Device, pool: Pool, kinds: dict[Hashable, int]) -> int:
    if device.facts.shared:
        # How much of it is in use tells it from others.
        return -1
    key = (device.facts, device.taints, device.consumes, pool.id if device.consumes else None)
    return kinds.setdefault(key, len(kinds))
