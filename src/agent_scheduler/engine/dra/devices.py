"""A device as its driver publishes it, compiled once from each change of its slice.

The values that selectors and constraints read are its `Facts`. These are interned by content: thousands of equal
devices in a cluster share one object, and with it the answers of every selector that was evaluated for any of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from agent_scheduler.objects import dra
from apimachinery.quantity import UNIT

from ..state.amounts import ParsedAmount, amount, units, written_like
from ..state.reach import Reach

#: Answers kept of one kind of device; expressions come from users.
ANSWERS_KEPT: Final = 1024


class DeviceId(NamedTuple):
    driver: str
    pool: str
    device: str

    @property
    def pool_id(self) -> PoolId:
        return PoolId(self.driver, self.pool)

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class PoolId(NamedTuple):
    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class Attribute(NamedTuple):
    """An attribute. `kind` is that of the API (`int`, `bool`, `string`, `version`), or empty for an unknown one."""

    kind: str
    value: Any


class Policy(NamedTuple):
    """The valid amounts of a capacity in requests (`requestPolicy`)."""

    default: ParsedAmount | None
    values: tuple[ParsedAmount, ...]
    minimum: ParsedAmount | None
    maximum: ParsedAmount | None
    step: ParsedAmount | None

    @property
    def is_range(self) -> bool:
        return self.minimum is not None or self.maximum is not None or self.step is not None


class Capacity(NamedTuple):
    value: ParsedAmount
    policy: Policy | None


class Facts:
    """The values by which a selector can distinguish devices. Equal contents are one object (`facts`)."""

    __slots__ = ("__weakref__", "answers", "attributes", "capacity", "driver", "seen", "shared")

    def __init__(
        self, driver: str, shared: bool, attributes: Mapping[str, Attribute], capacity: Mapping[str, Capacity]
    ) -> None:
        self.driver = driver
        #: Whether it allows multiple allocations.
        self.shared = shared
        #: The attributes by name as published: qualified by a domain, or the driver's.
        self.attributes = attributes
        self.capacity = capacity
        #: Results of selectors and of capacity requests, by the key of the caller (`keep`).
        self.answers: dict[Hashable, Any] = {}
        #: The variables of an evaluation. Owned by `cel`.
        self.seen: Any = None

    def attribute(self, name: str) -> Attribute | None:
        """Return the attribute with a fully qualified name."""
        found = self.attributes.get(name)
        if found is None:
            domain, _, identifier = name.partition("/")
            if domain == self.driver and identifier:
                found = self.attributes.get(identifier)
        return found

    def keep(self, key: Hashable, answer: Any) -> None:
        if len(self.answers) >= ANSWERS_KEPT:
            self.answers.clear()
        self.answers[key] = answer


class DeviceTaintInfo(NamedTuple):
    key: str
    value: str
    effect: str


class DeviceLocation(msgspec.Struct, frozen=True):
    """The nodes that can reach a device: one, those that a selector matches, or all. Without any of these: no node."""

    node_name: str = ""
    reach: Reach | None = None
    everywhere: bool = False


class DeviceInfo(msgspec.Struct, frozen=True):
    """A device; equal by content, except its slice."""

    name: str
    facts: Facts
    #: Only taints with the effect NoSchedule or NoExecute.
    taints: tuple[DeviceTaintInfo, ...]
    #: ((counter set, counter), billionths) that it consumes while it is allocated.
    consumes: tuple[tuple[tuple[str, str], int], ...]
    #: None: the place of its slice.
    place: DeviceLocation | None
    #: Whether a claim that gets it can be used on no other node.
    binds_to_node: bool
    #: Conditions that must be True before a pod with it may be bound, and those that report their failure.
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()


_interned: WeakValueDictionary[Hashable, Facts] = WeakValueDictionary()


def facts(driver: str, shared: bool, attributes: Mapping[str, Attribute], capacity: Mapping[str, Capacity]) -> Facts:
    key = (driver, shared, tuple(sorted(attributes.items())), tuple(sorted(capacity.items())))
    found = _interned.get(key)
    if found is None:
        found = _interned[key] = Facts(driver, shared, attributes, capacity)
    return found


def device(wire: dra.Device, driver: str, place: DeviceLocation | None) -> DeviceInfo:
    """Compile a device. Raises `QuantityError`."""
    return DeviceInfo(
        name=wire.name,
        facts=facts(
            driver,
            bool(wire.allow_multiple_allocations),
            {name: _attribute(each) for name, each in (wire.attributes or {}).items()},
            {name: _capacity(each) for name, each in (wire.capacity or {}).items()},
        ),
        taints=tuple(
            DeviceTaintInfo(taint.key, taint.value or "", taint.effect)
            for taint in wire.taints or ()
            if taint.effect in ("NoSchedule", "NoExecute")
        ),
        consumes=tuple(
            ((consumption.counter_set, name), amount(counter.value).nano)
            for consumption in wire.consumes_counters or ()
            for name, counter in (consumption.counters or {}).items()
        ),
        place=place,
        binds_to_node=bool(wire.binds_to_node),
        binding_conditions=tuple(wire.binding_conditions or ()),
        binding_failure_conditions=tuple(wire.binding_failure_conditions or ()),
    )


def _attribute(wire: dra.DeviceAttribute) -> Attribute:
    # The order does not matter: each kind has a field of its own.
    if wire.number is not None:
        return Attribute("int", wire.number)
    if wire.truth is not None:
        return Attribute("bool", wire.truth)
    if wire.string is not None:
        return Attribute("string", wire.string)
    if wire.version is not None:
        return Attribute("version", wire.version)
    return Attribute("", None)


def _capacity(wire: dra.DeviceCapacity) -> Capacity:
    return Capacity(amount(wire.value), _policy(wire.request_policy))


def _policy(wire: dra.RequestPolicy | None) -> Policy | None:
    if wire is None:
        return None
    bounds = wire.valid_range or dra.ValidRange()
    values = tuple(sorted(amount(each) for each in wire.valid_values or ()))
    return Policy(
        amount(wire.default) if wire.default is not None else None,
        values,
        amount(bounds.min) if bounds.min is not None else None,
        amount(bounds.max) if bounds.max is not None else None,
        amount(bounds.step) if bounds.step is not None else None,
    )


class Consumption(NamedTuple):
    name: str
    size: ParsedAmount


def consumption(facts: Facts, asked: tuple[tuple[str, ParsedAmount], ...]) -> tuple[Consumption, ...] | None:
    """Return the amounts that a request takes of each capacity (KEP-5075); None if the device is too small.

    A capacity is identified by its published name: one without a domain and one with the driver's own are two. A
    request without an amount takes the policy's default, or everything; otherwise it is rounded up to an amount that
    the policy allows. The same applies to devices that are not shared: the requested amounts must exist.
    """
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
    """Return whether a shared device has these amounts left."""
    if not in_use:
        return True
    return all(in_use.get(each.name, 0) + each.size.nano <= facts.capacity[each.name].value.nano for each in wanted)


def _taken(wanted: ParsedAmount | None, capacity: Capacity) -> ParsedAmount:
    policy = capacity.policy
    if wanted is None:
        return policy.default if policy is not None and policy.default is not None else capacity.value
    if policy is None:
        return wanted
    if policy.minimum is not None:
        return _rounded(wanted, policy.minimum, policy.step)
    return next((each for each in policy.values if wanted.nano <= each.nano), wanted)


def _rounded(wanted: ParsedAmount, least: ParsedAmount, step: ParsedAmount | None) -> ParsedAmount:
    """Round up to the next of `least`, `least + step`, ...; steps are whole units."""
    if wanted.nano < least.nano:
        return least
    if step is None or units(step.nano) <= 0:
        return wanted
    first, size = units(least.nano), units(step.nano)
    steps = -(-(units(wanted.nano) - first) // size)
    return written_like((first + steps * size) * UNIT, step)


def _allowed(size: ParsedAmount, policy: Policy | None) -> bool:
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
