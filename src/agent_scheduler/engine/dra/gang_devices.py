"""The devices that a gang may use on each node, and the classes of interchangeable devices.

Slots that use the same counters are a group: the partitions of one device. A slot without counters is a group of its
own. Two slots are equal for a search if their groups have equal slots, as far as the gang can distinguish them, equal
remaining counters, and the same slots taken. Devices that several claims can share, devices with admin access, and
partitions of devices that more than one node can reach have no equals.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Final

from ..state.nodeinfo import NodeInfo
from .allocating import wanted_of
from .allocator import VISIT
from .catalogue import PORTION, Devices
from .devices import DeviceId
from .node_devices import DeviceSlot, NodeDevices, devices_of
from .plans import ClaimPlan, DemandPlan, NodeRefused, RequestData
from .search import PASSED_A_STEP

#: The bits of a number of slots: more than a slice has devices.
_SHIFT: Final = 16


class Steps:
    """The steps of the search, counted as for one pod."""

    __slots__ = ("_passed", "taken")

    def __init__(self) -> None:
        self.taken = 0
        self._passed = 0

    def passed(self) -> None:
        """Count a skipped device, which costs a part of a step."""
        self._passed += 1
        if self._passed == PASSED_A_STEP:
            self._passed = 0
            self.taken += 1


class _SlotGroup:
    __slots__ = ("kind", "taken")

    def __init__(self, kind: int) -> None:
        self.kind = kind
        #: The numbers of taken slots of each sort, each in `_SHIFT` bits.
        self.taken = 0


@dataclass(slots=True, eq=False)
class NodeGangDevices:
    """The devices of a node for the gang. Indices are those of `GangDevices.slots`."""

    #: The claims of each plan; plans that cannot be satisfied there are left out.
    claims: Mapping[DemandPlan, Sequence[ClaimPlan]]
    candidates: Mapping[RequestData, Sequence[int]]
    #: The slots of requests for all devices; None if they are unknown.
    everything: Mapping[RequestData, Sequence[int] | None]
    #: The groups that no other node can reach.
    groups: Sequence[_SlotGroup]
    #: Equal for nodes with equal devices.
    alike: Hashable

    def taken(self) -> Hashable:
        """Return a value that is equal if the same is taken on nodes that are `alike`."""
        return tuple(sorted([(group.kind, group.taken) for group in self.groups if group.taken]))


class GangDevices:
    """The devices of all nodes. Owned by a search, which reports taken slots by `note`."""

    def __init__(self, plans: Iterable[DemandPlan], devices: Devices, steps: Steps) -> None:
        self._devices = devices
        self._plans = list(dict.fromkeys(plans))
        self._steps = steps
        claims = [claim for plan in self._plans for claim in plan.claims]
        self._attributes = sorted({each.attribute for one in claims for each in one.spec.constraints})
        self._has_admin = any(request.option.admin for claim in claims for request in claim.subrequests)
        #: The devices of all nodes, without duplicates.
        self.slots: list[DeviceSlot] = []
        self._index: dict[DeviceId, int] = {}
        #: Index of a slot -> its group, the unit of its sort in the group, and the least part of the group that it
        #: uses.
        self._groups: dict[int, tuple[_SlotGroup, int, float]] = {}
        #: The groups whose slots several nodes can reach.
        self._common: dict[_SlotGroup, None] = {}
        #: Bits of slots that are in groups.
        self.grouped = 0
        #: The number of groups in use, as a sum of parts.
        self.spent = 0.0
        self._kinds: dict[Hashable, int] = {}
        self._there: dict[Hashable, NodeGangDevices] = {}

    def forget(self) -> None:
        """Reset: nothing is taken."""
        self.spent = 0.0
        for group, _, _ in self._groups.values():
            group.taken = 0

    def note(self, index: int, sign: int) -> None:
        """Record that a slot is taken (1), or no longer (-1)."""
        found = self._groups.get(index)
        if found is not None:
            group, one, part = found
            group.taken += sign * one
            self.spent += sign * part

    def kind(self, index: int) -> Hashable:
        """Return a value that is currently equal for two equal slots of a node; None if the slot has no equal."""
        found = self._groups.get(index)
        return None if found is None else (found[0].kind, found[0].taken, found[1])

    def taken_of_common(self) -> Hashable:
        """Return a value as `NodeGangDevices.taken`, for devices that several nodes can reach."""
        return tuple(sorted([(group.kind, group.taken) for group in self._common if group.taken]))

    def on(self, node: NodeInfo) -> NodeGangDevices:
        there = devices_of(self._devices, node)
        claims: dict[DemandPlan, Sequence[ClaimPlan]] = {}
        for plan in self._plans:
            with suppress(NodeRefused):
                claims[plan] = plan.claims_on(node, self._devices)
        known = (there, tuple(claims.values()))
        found = self._there.get(known)
        if found is None:
            found = self._there[known] = self._look(there, claims)
        return found

    def least_parts(self, nodes: Collection[NodeInfo], enough: int) -> tuple[Mapping[RequestData, float], float]:
        """Return the least part of a group that each request takes, and the number of groups.

        Unlimited if there are at least `enough`, or if visiting all nodes would take too long.
        """
        groups: dict[_SlotGroup, None] = {}
        least: dict[RequestData, float] = {}
        unlimited = False
        until = self._steps.taken + PORTION
        for node in nodes:
            self._steps.taken += VISIT
            if self._steps.taken > until or len(groups) >= enough:
                unlimited = True
                break
            for request, some in self.on(node).candidates.items():
                found = [self._groups.get(index) for index in some]
                here = [0.0 if each is None else each[2] for each in found]
                least[request] = min(least.get(request, inf), *here, inf)
                groups.update((each[0], None) for each in found if each is not None)
        parts = {request: part * request.option.number for request, part in least.items()}
        return parts, inf if unlimited else len(groups)

    # ---- inside

    def _look(self, there: NodeDevices, claims: Mapping[DemandPlan, Sequence[ClaimPlan]]) -> NodeGangDevices:
        first = len(self.slots)
        indices = []
        for slot in there.slots:
            index = self._index.setdefault(slot.id, len(self.slots))
            if index == len(self.slots):
                self.slots.append(slot)
            indices.append(index)
        requests = dict.fromkeys(request for each in claims.values() for claim in each for request in claim.subrequests)
        candidates = {each: self._candidates(each, indices) for each in requests if not each.option.takes_all}
        everything = {each: self._everything(each, indices, there) for each in requests if each.option.takes_all}
        selected_by: dict[int, list[RequestData]] = {}
        for request, some in (*candidates.items(), *everything.items()):
            for index in some or ():
                selected_by.setdefault(index, []).append(request)
        if not self._has_admin:
            self._classify({index: tuple(by) for index, by in selected_by.items() if index >= first})
        groups = dict.fromkeys(self._groups[index][0] for index in selected_by if index in self._groups)
        mine = [group for group in groups if group not in self._common]
        others = [group.kind for group in groups if group in self._common]
        apart = [index for index in selected_by if index not in self._groups]
        alike = (tuple(sorted(group.kind for group in mine)), tuple(others), tuple(apart))
        return NodeGangDevices(claims, candidates, everything, mine, alike)

    def _selects(self, request: RequestData, slot: DeviceSlot) -> bool:
        self._steps.passed()
        if request.selectors and request.selectors not in slot.facts.answers:
            self._steps.taken += request.evaluation
        return request.selects(slot.facts)

    def _candidates(self, request: RequestData, indices: Sequence[int]) -> list[int]:
        """Return the slots that the request may use beside other claims, up to one whose check fails."""
        found = []
        for index in indices:
            slot = self.slots[index]
            try:
                if not (request.option.admin or slot.is_open) or not self._selects(request, slot):
                    continue
            except NodeRefused:
                break
            if slot.has_counters() and request.tolerates(slot.device.taints) and wanted_of(request, slot) is not None:
                found.append(index)
        return found

    def _everything(self, request: RequestData, indices: Sequence[int], there: NodeDevices) -> list[int] | None:
        if there.unusable:
            return None
        slots = self.slots
        try:
            return [
                index
                for index in indices
                if self._selects(request, slots[index]) and wanted_of(request, slots[index]) is not None
            ]
        except NodeRefused:
            return None

    def _classify(self, selected_by: Mapping[int, Hashable]) -> None:
        """Group new slots; `selected_by` has the requests that select each slot, by which slots differ."""
        beside: dict[Hashable, list[int]] = {}
        for index in selected_by:
            slot = self.slots[index]
            sets = {counter_set for (counter_set, _), _ in slot.device.consumes}
            if slot.facts.shared or len(sets) > 1 or (sets and not slot.place.node_name):
                continue
            if slot.is_open and slot.has_counters():
                beside.setdefault((slot.pool.id, *(sets or (index,))), []).append(index)
        for together in beside.values():
            self._add_group(together, selected_by)

    def _add_group(self, together: Sequence[int], selected_by: Mapping[int, Hashable]) -> None:
        slots = [self.slots[index] for index in together]
        pool, place = slots[0].pool, slots[0].place
        left = {
            counter: pool.counters.get(counter, 0) - pool.counters_used.get(counter, 0)
            for slot in slots
            for counter, _ in slot.device.consumes
        }
        sorts = [
            (
                selected_by[index],
                tuple(map(slot.facts.attribute, self._attributes)),
                tuple((name, size) for (_, name), size in slot.device.consumes),
            )
            for index, slot in zip(together, slots, strict=True)
        ]
        kind = (
            None if place.node_name else id(place),
            tuple(sorts),
            tuple((name, size) for (_, name), size in sorted(left.items())),
        )
        group = _SlotGroup(self._kinds.setdefault(kind, len(self._kinds)))
        if not place.node_name:
            self._common[group] = None
        parts = _parts(slots, left)
        for index, sort, part in zip(together, sorts, parts, strict=True):
            self._groups[index] = group, 1 << _SHIFT * sorts.index(sort), part
            self.grouped |= 1 << index


def _parts(slots: Sequence[DeviceSlot], left: Mapping[tuple[str, str], int]) -> list[float]:
    """Return the part of each slot, such that slots in use together sum up to at most one group.

    The part is that of the counter used most, or one if there is none.
    """
    if not left:
        return [1.0]
    drawn = [dict(slot.device.consumes) for slot in slots]
    by_counter = [[each.get(counter, 0) / size if size else 0.0 for each in drawn] for counter, size in left.items()]
    return max(by_counter, key=min)
