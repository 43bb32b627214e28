"""Compiles the spec of a ResourceClaim from its bytes; equal bytes yield the same object.

So claims of one template are recognized as equal without parsing them again, and their pods can share a class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw

from agent_scheduler.objects import dra
from apimachinery.quantity import QuantityError

from .amounts import ParsedAmount, amount
from .podspec import decode_part

_spec = msgspec.json.Decoder(dra.ResourceClaimSpec)

ALL = "All"
EXACT_COUNT = "ExactCount"


class DeviceTolerationInfo(NamedTuple):
    key: str
    operator: str
    value: str
    effect: str


class Option(NamedTuple):
    """A request, or one of the alternatives of a request (`firstAvailable`)."""

    #: The name in errors: without the name of the request that it is an alternative of.
    name: str
    #: The name in results: `request` or `request/alternative`.
    result_name: str
    class_name: str
    selectors: tuple[str, ...]
    #: The number of devices; unused if `takes_all`.
    number: int
    takes_all: bool = False
    admin: bool = False
    tolerations: tuple[DeviceTolerationInfo, ...] = ()
    #: Tolerations as written, for results.
    written_tolerations: tuple[Any, ...] = ()
    #: (name of a capacity, requested amount).
    capacity: tuple[tuple[str, ParsedAmount], ...] = ()


class DeviceRequestInfo(NamedTuple):
    name: str
    #: One option, or several alternatives of which the first available one is used.
    options: tuple[Option, ...]
    prioritized: bool


class Constraint(NamedTuple):
    attribute: str
    #: Whether the values must differ; otherwise they must be equal.
    distinct: bool
    #: Names of requests or alternatives; empty for all.
    requests: frozenset[str]


class ClaimConfig(NamedTuple):
    requests: tuple[str, ...]
    #: The JSON of its `opaque`.
    opaque: bytes


@dataclass(slots=True, weakref_slot=True, eq=False)
class ClaimSpec:
    """A compiled spec; equal only to itself. `error` describes an invalid part, in kube-scheduler's wording if any."""

    requests: tuple[DeviceRequestInfo, ...]
    constraints: tuple[Constraint, ...] = ()
    configuration: tuple[ClaimConfig, ...] = ()
    error: str = ""

    @property
    def class_names(self) -> frozenset[str]:
        return frozenset(option.class_name for request in self.requests for option in request.options)


#: The limit of all expressions of a request, which are compiled at once. It is Kubernetes' for one of them.
MOST_CHARACTERS: Final = 10 * 1024


class _Unsupported(ValueError):
    """A part of a claim has an unknown kind; the message names it."""


_interned: WeakValueDictionary[bytes, ClaimSpec] = WeakValueDictionary()


def claim_spec(raw: Raw | bytes) -> ClaimSpec:
    """Compile a spec. Never raises; a problem is in `error`."""
    data = bytes(raw)
    found = _interned.get(data)
    if found is None:
        found = _interned[data] = _read(data)
    return found


def _read(data: bytes) -> ClaimSpec:
    try:
        wire: dra.ResourceClaimSpec = decode_part(_spec, Raw(data), "spec") or dra.ResourceClaimSpec()
        return ClaimSpec(
            tuple(_request(each) for each in wire.devices.requests or ()),
            tuple(_constraint(index, each) for index, each in enumerate(wire.devices.constraints or ())),
            tuple(ClaimConfig(tuple(each.requests or ()), bytes(each.opaque)) for each in wire.devices.config or ()),
        )
    except ValueError as error:
        return ClaimSpec((), error=str(error))


def _request(wire: dra.DeviceRequest) -> DeviceRequestInfo:
    if wire.exactly is not None:
        option = _option(wire.exactly, wire.name, wire.name, admin=bool(wire.exactly.admin_access))
        return DeviceRequestInfo(wire.name, (option,), False)
    if wire.first_available:
        return DeviceRequestInfo(
            wire.name,
            tuple(_option(each, each.name, f"{wire.name}/{each.name}") for each in wire.first_available),
            True,
        )
    raise _Unsupported(f"request {wire.name}: unknown request type")


def _option(wire: dra.ExactRequest | dra.SubRequest, name: str, result_name: str, *, admin: bool = False) -> Option:
    mode = wire.allocation_mode or EXACT_COUNT
    if mode not in (ALL, EXACT_COUNT):
        raise _Unsupported(f"request {name}: unsupported count mode {mode}")
    if not wire.device_class_name:
        raise _Unsupported(f"request {name}: missing device class name (unsupported request type?)")
    selectors = []
    for index, selector in enumerate(wire.selectors or ()):
        if selector.cel is None:
            raise _Unsupported(f"request {name}, selector #{index}: CEL expression empty (unsupported selector type?)")
        selectors.append(selector.cel.expression)
    characters = sum(map(len, selectors))
    if len(selectors) > 1 and characters > MOST_CHARACTERS:
        raise _Unsupported(
            f"request {name}: {characters} characters of CEL expressions; allowed: {MOST_CHARACTERS} in all selectors"
        )
    capacity = []
    for key, quantity in ((wire.capacity.requests if wire.capacity else None) or {}).items():
        try:
            capacity.append((key, amount(quantity)))
        except QuantityError as error:
            raise _Unsupported(f"request {name}, capacity.requests[{key}]: {error}") from None
    return Option(
        name=name,
        result_name=result_name,
        class_name=wire.device_class_name,
        selectors=tuple(selectors),
        takes_all=mode == ALL,
        number=max(wire.count or 1, 1),
        admin=admin,
        tolerations=tuple(
            DeviceTolerationInfo(each.key or "", each.operator or "Equal", each.value or "", each.effect or "")
            for each in wire.tolerations or ()
        ),
        written_tolerations=tuple(msgspec.to_builtins(each) for each in wire.tolerations or ()),
        capacity=tuple(capacity),
    )


def _constraint(index: int, wire: dra.DeviceConstraint) -> Constraint:
    requests = frozenset(wire.requests or ())
    if wire.match_attribute is not None:
        return Constraint(wire.match_attribute, False, requests)
    if wire.distinct_attribute is not None:
        return Constraint(wire.distinct_attribute, True, requests)
    raise _Unsupported(f"constraint #{index}: empty constraint (unsupported constraint type?)")
