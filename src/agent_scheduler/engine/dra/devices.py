"""A device as its driver publishes it, compiled once from each change of its slice.

What selectors and constraints read of it are its `Facts`. These are interned by content: the thousand equal devices of
a cluster share one object, and with it the answers of every selector that was ever asked about any of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from agent_scheduler.objects import dra

from ..state.amounts import Amount, amount
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
    """`kind` is that of the API (`int`, `bool`, `string`, `version`), or empty for one that is not known here."""

    kind: str
    value: Any


class Policy(NamedTuple):
    """What amounts of a capacity may be asked for (`requestPolicy`)."""

    default: Amount | None
    values: tuple[Amount, ...]
    minimum: Amount | None
    maximum: Amount | None
    step: Amount | None

    @property
    def is_range(self) -> bool:
        return self.minimum is not None or self.maximum is not None or self.step is not None


class Capacity(NamedTuple):
    value: Amount
    policy: Policy | None


class Facts:
    """What a selector can tell devices apart by. Equal contents, same object (`facts`)."""

    __slots__ = ("__weakref__", "answers", "attributes", "capacity", "driver", "seen", "shared")

    def __init__(
        self,
        driver: str,
        shared: bool,
        attributes: Mapping[str, Attribute],
        capacity: Mapping[str, Capacity],
    ) -> None:
        self.driver = driver
        #: Whether it allows multiple allocations.
        self.shared = shared
        #: By name as published: qualified by a domain, or the driver's.
        self.attributes = attributes
        self.capacity = capacity
        #: What selectors said, by the key of whoever asked. Owner: `selectors`.
        self.answers: dict[Hashable, Any] = {}
        #: The variables of an evaluation. Owner: `cel`.
        self.seen: Any = None

    def attribute(self, name: str) -> Attribute | None:
        """By a fully qualified name."""
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


class Taint(NamedTuple):
    key: str
    value: str
    effect: str


class Place(msgspec.Struct, frozen=True):
    """Which nodes have it: one, those that a selector matches, or all. None of these: no node."""

    node_name: str = ""
    reach: Reach | None = None
    everywhere: bool = False


class Device(msgspec.Struct, frozen=True):
    """Equal by content, but for its slice."""

    name: str
    facts: Facts
    #: Only those that keep anybody away.
    taints: tuple[Taint, ...]
    #: ((counter set, counter), billionths) that it takes while anybody has it.
    consumes: tuple[tuple[tuple[str, str], int], ...]
    #: None: where its slice is.
    place: Place | None
    #: Whether a claim that gets it can be used on no other node.
    binds_to_node: bool
    #: Conditions that have to be True before a pod that got it may be bound, and those that say that this has failed.
    binding: tuple[str, ...] = ()
    binding_failures: tuple[str, ...] = ()


_interned: WeakValueDictionary[Hashable, Facts] = WeakValueDictionary()


def facts(
    driver: str, shared: bool, attributes: Mapping[str, Attribute], capacity: Mapping[str, Capacity]
) -> Facts:
    key = (driver, shared, tuple(sorted(attributes.items())), tuple(sorted(capacity.items())))
    found = _interned.get(key)
    if found is None:
        found = _interned[key] = Facts(driver, shared, attributes, capacity)
    return found


def device(wire: dra.Device, driver: str, place: Place | None) -> Device:
    """Raises `QuantityError`."""
    return Device(
        name=wire.name,
        facts=facts(
            driver,
            bool(wire.allow_multiple_allocations),
            {name: _attribute(each) for name, each in (wire.attributes or {}).items()},
            {name: _capacity(each) for name, each in (wire.capacity or {}).items()},
        ),
        taints=tuple(
            Taint(taint.key, taint.value or "", taint.effect)
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
        binding=tuple(wire.binding_conditions or ()),
        binding_failures=tuple(wire.binding_failure_conditions or ()),
    )


def _attribute(wire: dra.DeviceAttribute) -> Attribute:
    # bool before int would be the same: each kind has a field of its own.
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
