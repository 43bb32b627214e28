"""How many devices there are on a node for an extended resource, as scores count them (KEP-5004)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..state.nodeinfo import NodeInfo
from .catalogue import Devices
from .devices import Device
from .node_devices import is_on
from .plans import asked
from .pools import Pool


class Totals(NamedTuple):
    """Devices of the resource's class that the node can have, and those of them that somebody has."""

    offered: int
    taken: int


NOTHING = Totals(0, 0)


def totals(resource: str, devices: Devices, node: NodeInfo) -> Totals:
    """All slices count, whatever their generation, and whether or not the pool is complete. Nothing where a selector of
    the class cannot be asked."""
    found = devices.class_of_resource(resource)
    if found is None:
        return NOTHING
    offered = taken = 0
    for pool in devices.pools.of(node.name):
        for device in _devices(pool, node):
            matches = asked(found.selectors, device.facts)
            if not isinstance(matches, bool):
                return NOTHING
            offered += matches
            taken += matches and (device.name in pool.exclusive or device.name in pool.shares)
    return Totals(offered, taken)


def _devices(pool: Pool, node: NodeInfo) -> Iterator[Device]:
    for each in pool.slices.values():
        if is_on(each.place, node):
            yield from each.devices
        else:
            yield from (
                device for device in each.devices if device.place is not None and is_on(device.place, node)
            )
