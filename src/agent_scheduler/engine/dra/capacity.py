"""How much of a device's capacities a request takes (KEP-5075), and whether the device allows such a request.

A capacity is called what its driver published: one without a domain and one with the driver's own are two, in requests
and in what is consumed. A request that names no amount takes the policy's default, or all there is. Otherwise it is
rounded up to what the policy allows. The rule holds for devices that are not shared, too: what is asked of them has to
be there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from agent_scheduler.objects.quantity import UNIT

from ..state.amounts import Amount, units, written_like
from .devices import Capacity, Facts, Policy


class Consumption(NamedTuple):
    name: str
    size: Amount


def consumption(facts: Facts, asked: tuple[tuple[str, Amount], ...]) -> tuple[Consumption, ...] | None:
    """What a request takes of each capacity; None if the device cannot give it, however little of it is in use."""
    if not facts.capacity:
        return None if asked else ()
    wanted = dict(asked)
    if not wanted.keys() <= facts.capacity.keys():
        return None
    found = []
    for name, capacity in sorted(facts.capacity.items()):
        size = _taken(wanted.get(name), capacity)
        if size.nano < 0 or size.nano > capacity.value.nano or not _allowed(size, capacity.policy):
            return None
        found.append(Consumption(name, size))
    return tuple(found)


def fits(wanted: tuple[Consumption, ...], in_use: Mapping[str, int], facts: Facts) -> bool:
    """Whether a shared device has so much left."""
    if not in_use:
        return True
    return all(
        in_use.get(each.name, 0) + each.size.nano <= facts.capacity[each.name].value.nano for each in wanted
    )


def _taken(wanted: Amount | None, capacity: Capacity) -> Amount:
    policy = capacity.policy
    if wanted is None:
        return policy.default if policy is not None and policy.default is not None else capacity.value
    if policy is None:
        return wanted
    if policy.minimum is not None:
        return _rounded(wanted, policy.minimum, policy.step)
    return next((each for each in policy.values if wanted.nano <= each.nano), wanted)


def _rounded(wanted: Amount, least: Amount, step: Amount | None) -> Amount:
    """Up to the next of `least`, `least + step`, ...; steps are whole units."""
    if wanted.nano < least.nano:
        return least
    if step is None or units(step.nano) <= 0:
        return wanted
    first, size = units(least.nano), units(step.nano)
    steps = -(-(units(wanted.nano) - first) // size)
    return written_like((first + steps * size) * UNIT, step)


def _allowed(size: Amount, policy: Policy | None) -> bool:
    if policy is None or (policy.default is not None and size.nano == policy.default.nano):
        return True
    if policy.is_range:
        if policy.maximum is not None and size.nano > policy.maximum.nano:
            return False
        if policy.step is not None and units(policy.step.nano) > 0:
            first = units(policy.minimum.nano) if policy.minimum is not None else 0
            return (units(size.nano) - first) % units(policy.step.nano) == 0
        return True
    return not policy.values or any(size.nano == each.nano for each in policy.values)
