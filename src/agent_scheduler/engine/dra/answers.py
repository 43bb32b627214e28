"""Answers of the allocator, kept by demand and node until something changes that the node's answer depends on.

Where devices were only taken since, by others, no search can find more than before: what was refused still is, and what
was found is still what is found first, if nobody took of it. So a device that all nodes can have costs each of them a
look and not a search.

What a budget has cut short is no answer: the search is kept, and gone on with when the node is asked about again.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, NamedTuple

from ..state.nodeinfo import NodeInfo
from ..state.podclaims import Demand
from .allocation import Allocation
from .allocator import CANNOT_ALLOCATE, NOT_ASKED, Refused, Undecided, allocate
from .catalogue import Devices, SearchBudget
from .node_devices import NodeDevices, devices_of
from .plans import plan_of

Answer = tuple[Allocation, ...] | Refused


class _Kept(NamedTuple):
    stamp: tuple[int, int]
    loosened: tuple[int, int]
    node: NodeInfo
    answer: Answer


def answer(demand: Demand, devices: Devices, node: NodeInfo, budget: SearchBudget | None = None) -> Answer:
    """`allocate`, asked again only if the answer may be another one. Without steps in the budget only what is known is
    said."""
    plan = plan_of(demand, devices)
    stamp, loosened = devices.pools.stamp(node.name), devices.pools.loosened(node.name)
    kept: MutableMapping[Any, _Kept] = plan.answers
    key: str | NodeDevices = node.name
    if not (plan.problem or demand.held or demand.extended):
        there = devices_of(devices, node)
        if there.shared:
            # None of these nodes has pools of its own, and no answer is about one of them alone.
            kept, key = plan.shared_answers, there
            stamp, loosened = (0, stamp[1]), (0, loosened[1])
    found, begun = kept.get(key), NOT_ASKED
    if found is not None and (key is not node.name or found.node is node or _alike(found.node, node)):
        if found.stamp == stamp:
            if isinstance(found.answer, Undecided):
                begun = found.answer
            else:
                return found.answer
        elif found.loosened == loosened and not plan.takes_all and _holds(found.answer, devices):
            kept[key] = found._replace(stamp=stamp)
            return found.answer
    if budget is not None and budget.left <= 0:
        return begun
    new = allocate(demand, devices, node, budget, begun)
    kept[key] = _Kept(stamp, loosened, node, new)
    return new


def _holds(found: Answer, devices: Devices) -> bool:
    """Whether an answer is what would be found, though devices were taken since."""
    if isinstance(found, Refused):
        return found.reason == CANNOT_ALLOCATE
    return devices.pools.are_free(use for each in found for use in each.holding.uses)


def _alike(one: NodeInfo, other: NodeInfo) -> bool:
    """Whether nothing that is read of a node differs."""
    labels: Mapping[str, str] = one.labels
    return labels == other.labels and one.allocatable == other.allocatable
