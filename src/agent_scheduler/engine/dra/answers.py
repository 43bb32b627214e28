"""Answers of the allocator, kept by demand and node until something changes that the node's answer depends on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..nodeinfo import NodeInfo
from .allocation import Allocation
from .allocator import Budget, Refused, allocate
from .catalogue import Devices
from .demand import Demand
from .plans import plan_of

Answer = tuple[Allocation, ...] | Refused


class _Kept(NamedTuple):
    stamp: tuple[int, int]
    node: NodeInfo
    answer: Answer


def answer(demand: Demand, devices: Devices, node: NodeInfo, budget: Budget | None = None) -> Answer:
    """`allocate`, asked again only if the answer may be another one."""
    kept: dict[str, _Kept] = plan_of(demand, devices).answers
    stamp = devices.stamp(node.name)
    found = kept.get(node.name)
    if found is not None and found.stamp == stamp and (found.node is node or _alike(found.node, node)):
        return found.answer
    new = allocate(demand, devices, node, budget)
    kept[node.name] = _Kept(stamp, node, new)
    return new


def _alike(one: NodeInfo, other: NodeInfo) -> bool:
    """Whether nothing that is read of a node differs."""
    labels: Mapping[str, str] = one.labels
    return labels == other.labels and one.allocatable == other.allocatable
