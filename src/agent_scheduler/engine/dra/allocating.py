"""The choices of a running search, and whether a device can be added to them.

Each step can be undone, the last first: a search backtracks when a request has no device left.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final, NamedTuple

from .devices import Attribute, Consumption, consumption, fits
from .node_devices import CounterKey, DeviceSlot
from .plans import ClaimPlan, RequestData


class DeviceChoice(NamedTuple):
    """A device for a request."""

    request: RequestData
    slot: DeviceSlot
    #: The amounts taken from a shared device.
    consumed: tuple[Consumption, ...]


class Allocating:
    """The devices chosen so far for some claims. `index` is that of one of `slots`."""

    def __init__(self, claims: Sequence[ClaimPlan], slots: Sequence[DeviceSlot]) -> None:
        self._claims: list[ClaimPlan] = []
        self._slots = slots
        #: The reason why a request for all devices failed although they exist; empty if that never happened.
        self.problem = ""
        #: The choices by claim.
        self.chosen: list[list[DeviceChoice]] = []
        #: Bits of slots that are taken exclusively; and by claim, bits of slots that it has in any way.
        self._taken = 0
        self._used: list[int] = []
        #: [claim][constraint] the values of the claim's devices.
        self._values: list[list[list[Attribute]]] = []
        #: (pool, counter) -> the amount that the devices taken here use.
        self._counters: dict[CounterKey, int] = {}
        #: Slot -> the amounts taken from a shared device here, one entry per use.
        self._shares: dict[int, list[tuple[Consumption, ...]]] = {}
        self._has_admin = False
        for claim in claims:
            self.begin(claim)

    def begin(self, claim: ClaimPlan) -> None:
        """Add a claim after the others."""
        self._claims.append(claim)
        self.chosen.append([])
        self._used.append(0)
        self._values.append([[] for _ in claim.spec.constraints])
        self._has_admin = self._has_admin or any(request.option.admin for request in claim.subrequests)

    def drop(self) -> None:
        """Undo the last `begin`, after all devices of the claim are given back."""
        for each in (self._claims, self.chosen, self._used, self._values):
            each.pop()

    def rest(self, claim_index: int, request_index: int, known: int = 0) -> Hashable:
        """Return a value that is equal if the remaining requests have the same choices.

        `known` has the bits of slots whose state the caller knows itself.
        """
        return (
            claim_index,
            request_index,
            self._used[claim_index] & ~known,
            len(self.chosen[claim_index]),
            tuple(map(tuple, self._values[claim_index])),
            self.taken(known),
        )

    def taken(self, known: int = 0) -> Hashable:
        """Return a value that is equal if the same is taken from the same devices."""
        return (
            self._taken & ~known,
            # Other uses follow from the taken slots.
            tuple(sorted(self._counters.items())) if self._has_admin else (),
            tuple((slot, tuple(uses)) for slot, uses in sorted(self._shares.items()) if uses),
        )

    def is_free(self, claim_index: int, request: RequestData, index: int, slot: DeviceSlot) -> bool:
        """Return whether no use by others or by this search excludes the request from the device.

        `take` checks the remaining amounts of a shared device.
        """
        if slot.facts.shared:
            return request.option.admin or slot.name not in slot.pool.exclusive
        if self._used[claim_index] >> index & 1:
            return False
        if request.option.admin:
            return True
        return not (self._taken >> index & 1 or slot.name in slot.pool.exclusive or slot.name in slot.pool.shares)

    def take(self, claim_index: int, request: RequestData, index: int, *, must: bool = False) -> bool:
        """Take a free and selected device if nothing else excludes it.

        Return false, with nothing changed, otherwise.
        """
        slot = self._slots[index]
        device = slot.device
        if device.taints and not request.tolerates(device.taints):
            return False
        wanted = wanted_of(request, slot)
        if wanted is None:
            return False
        shares = self._shares.get(index, ()) if slot.facts.shared and not request.option.admin else ()
        if shares and not _leaves_enough(slot, wanted, shares):
            return False
        if device.consumes and self._needs_counters(index, slot) and not slot.has_counters(self._counters):
            return False
        if request.applying and not self._agrees(claim_index, request, slot):
            if must:
                self.problem = self.problem or (
                    f"claim {request.claim}, request {request.option.name}: cannot add device {slot.id} "
                    "because a claim constraint would not be satisfied"
                )
            return False
        self._note(claim_index, request, index, 1)
        if slot.facts.shared:
            if not request.option.admin:
                self._shares.setdefault(index, []).append(wanted)
        else:
            self._used[claim_index] |= 1 << index
            if not request.option.admin:
                self._taken |= 1 << index
        self.chosen[claim_index].append(DeviceChoice(request, slot, wanted))
        return True

    def give_back(self, claim_index: int, index: int) -> None:
        """Undo the last `take`, which was of this slot."""
        choice = self.chosen[claim_index].pop()
        if choice.slot.facts.shared:
            if not choice.request.option.admin:
                self._shares[index].pop()
        else:
            self._used[claim_index] &= ~(1 << index)
            if not choice.request.option.admin:
                self._taken &= ~(1 << index)
        self._note(claim_index, choice.request, index, -1)

    def _note(self, claim_index: int, request: RequestData, index: int, sign: int) -> None:
        """Update counters and constraints for a device, before it is taken or after it was given back."""
        slot = self._slots[index]
        if slot.device.consumes and self._needs_counters(index, slot):
            for counter, size in slot.device.consumes:
                key = (slot.pool.id, counter)
                self._counters[key] = self._counters.get(key, 0) + sign * size
        for constraint in request.applying:
            values = self._values[claim_index][constraint]
            if sign > 0:
                value = slot.facts.attribute(self._claims[claim_index].spec.constraints[constraint].attribute)
                assert value is not None, "it agrees"
                values.append(value)
            else:
                values.pop()

    def _agrees(self, claim_index: int, request: RequestData, slot: DeviceSlot) -> bool:
        """Return whether the constraints on the request (`matchAttribute`, `distinctAttribute`) allow the device."""
        constraints = self._claims[claim_index].spec.constraints
        for index in request.applying:
            value = slot.facts.attribute(constraints[index].attribute)
            if value is None or not value.kind:
                return False
            values = self._values[claim_index][index]
            if constraints[index].distinct:
                if value in values:
                    return False
            elif values and values[0] != value:
                return False
        return True

    def _needs_counters(self, index: int, slot: DeviceSlot) -> bool:
        """Return whether its counters must be free, also for admin access: not if a sharing use has them already."""
        return not (slot.facts.shared and (self._shares.get(index) or slot.name in slot.pool.shares))


#: Marks a missing answer; None is the answer for devices that cannot provide the request.
_UNKNOWN: Final[Any] = object()


def wanted_of(request: RequestData, slot: DeviceSlot) -> tuple[Consumption, ...] | None:
    """Return the amounts that a request takes of the device's capacities; None if not enough is left."""
    facts = slot.facts
    amounts: tuple[Consumption, ...] | None = facts.answers.get(request.capacity_key, _UNKNOWN)
    if amounts is _UNKNOWN:
        amounts = consumption(facts, request.option.capacity)
        facts.keep(request.capacity_key, amounts)
    if amounts is None:
        return None
    if not facts.shared:
        return ()
    # Admin access consumes nothing.
    if request.option.admin or fits(amounts, slot.pool.consumed.get(slot.name, {}), facts):
        return amounts
    return None


def _leaves_enough(
    slot: DeviceSlot, wanted: tuple[Consumption, ...], shares: Sequence[tuple[Consumption, ...]]
) -> bool:
    in_use = dict(slot.pool.consumed.get(slot.name, {}))
    for use in shares:
        for each in use:
            in_use[each.name] = in_use.get(each.name, 0) + each.size.nano
    return fits(wanted, in_use, slot.facts)
