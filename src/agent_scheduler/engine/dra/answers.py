"""Answers of the allocator, kept by demand and node until something changes that the node's answer depends on."""

from __future__ import annotations

from ..nodeinfo import NodeInfo
from .allocation import Allocation
from .allocator import Refused, allocate
from .catalogue import Devices
from .demand import Demand

Answer = tuple[Allocation, ...] | Refused


class _Kept:
    __slots__ = ("by_node", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        #: Node name -> (what it was asked of, stamp, answer).
        self.by_node: dict[str, tuple[NodeInfo, tuple[int, int], Answer]] = {}


def answer(demand: Demand, devices: Devices, node: NodeInfo) -> Answer:
    """`allocate`, asked again only if the answer may be another one."""
    kept = devices.kept.get(demand)
    if kept is None or kept.version != devices.version:
        kept = devices.kept[demand] = _Kept(devices.version)
    stamp = devices.stamp(node.name)
    found = kept.by_node.get(node.name)
    if found is not None and found[0] is node and found[1] == stamp:
        known: Answer = found[2]
        return known
    new = allocate(demand, devices, node)
    kept.by_node[node.name] = (node, stamp, new)
    return new
