"""The allocation of a claim: read from its status, or found by the allocator and written there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from agent_scheduler.objects import dra
from agent_scheduler.objects.wire import NodeAffinity, NodeSelector

from ..state.amounts import ParsedAmount, amount
from ..state.podspec import SpecError, check_node_affinity
from ..state.reach import Reach, reach_of
from .devices import DeviceId


class Use(NamedTuple):
    """A device of one result, or a share of it, that is not available to other claims. Admin access has no `Use`."""

    id: DeviceId
    #: Whether others may also use it, within its capacity.
    shared: bool
    #: Capacity -> billionths; only for shared devices.
    consumed: tuple[tuple[str, int], ...] = ()


class AllocatedDevices(msgspec.Struct, frozen=True):
    """The devices of an allocation that are not available to others. Equal by content."""

    uses: tuple[Use, ...]
    #: The nodes where the claim can be used; None for all.
    reach: Reach | None
    #: The error of an invalid part; empty if all is valid.
    error: str = ""


class RequestResult(NamedTuple):
    """A device for a request, an item of `status.allocation.devices.results`."""

    request: str
    id: DeviceId
    admin: bool
    tolerations: tuple[Any, ...]
    shared: bool
    #: The amounts taken of the capacities of a shared device.
    consumed: tuple[tuple[str, ParsedAmount], ...]
    #: Binding conditions of the device, and those that report their failure.
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()


class Config(NamedTuple):
    source: str
    #: Empty for all.
    requests: tuple[str, ...]
    opaque: bytes


@dataclass(slots=True)
class Allocation:
    """A valid allocation for one claim on the node that it was found for. Immutable."""

    results: tuple[RequestResult, ...]
    configuration: tuple[Config, ...]
    #: None: the claim can be used anywhere.
    selector: NodeSelector | None
    #: The value of the chosen alternatives, higher for earlier ones; the sum over claims ranks nodes.
    preference: int = 0
    _allocated: AllocatedDevices | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def allocated(self) -> AllocatedDevices:
        """The devices of the allocation, computed on the first call."""
        if self._allocated is None:
            self._allocated = AllocatedDevices(
                tuple(
                    Use(each.id, each.shared, tuple(sorted((name, size.nano) for name, size in each.consumed)))
                    for each in self.results
                    if not each.admin
                ),
                reach_of(self.selector) if self.selector is not None else None,
            )
        return self._allocated

    @property
    def drivers_to_wait_for(self) -> frozenset[str]:
        """Drivers that have to make devices ready before the pod may be bound."""
        return frozenset(each.id.driver for each in self.results if each.binding_conditions)

    def status(self, claim_uid: str, at: str = "") -> dict[str, Any]:
        """Return the claim's `status.allocation`. `at` is the time in the API's format."""
        devices: dict[str, Any] = {
            "results": [_result(each, claim_uid, index) for index, each in enumerate(self.results)]
        }
        if self.configuration:
            devices["config"] = [_config(each) for each in self.configuration]
        found: dict[str, Any] = {"devices": devices}
        if at:
            found["allocationTimestamp"] = at
        if self.selector is not None:
            found["nodeSelector"] = msgspec.to_builtins(self.selector)
        return found


def share_id(claim_uid: str, index: int) -> str:
    """Return the stable name of one use of a shared device; a UUID, as the API server requires."""
    digits = hashlib.sha256(f"{claim_uid}/{index}".encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"


def _result(each: RequestResult, claim_uid: str, index: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "request": each.request,
        "driver": each.id.driver,
        "pool": each.id.pool,
        "device": each.id.device,
    }
    if each.admin:
        result["adminAccess"] = True
    if each.tolerations:
        result["tolerations"] = list(each.tolerations)
    if each.shared:
        result["shareID"] = share_id(claim_uid, index)
        if each.consumed:
            result["consumedCapacity"] = {name: size.text for name, size in each.consumed}
    if each.binding_conditions:
        result["bindingConditions"] = list(each.binding_conditions)
        if each.binding_failure_conditions:
            result["bindingFailureConditions"] = list(each.binding_failure_conditions)
    return result


def _config(each: Config) -> dict[str, Any]:
    found: dict[str, Any] = {"source": each.source}
    if each.requests:
        found["requests"] = list(each.requests)
    if each.opaque:
        found["opaque"] = msgspec.json.decode(each.opaque)
    return found


def allocated_devices(wire: dra.AllocationResult) -> AllocatedDevices:
    """Decode an allocation.

    Never raises: errors are in `error`, and an invalid capacity counts as the whole device.
    """
    uses, errors = [], []
    for index, result in enumerate(wire.devices.results or ()):
        if result.admin_access:
            continue
        shared = result.share_id is not None
        consumed: Mapping[str, Any] = (result.consumed_capacity or {}) if shared else {}
        sizes = []
        for name, quantity in consumed.items():
            try:
                sizes.append((name, amount(quantity).nano))
            except ValueError as error:
                errors.append(f"status.allocation.devices.results[{index}].consumedCapacity[{name}]: {error}")
                shared = False
        uses.append(
            Use(DeviceId(result.driver, result.pool, result.device), shared, tuple(sorted(sizes)) if shared else ())
        )
    reach = None
    if wire.node_selector is not None:
        try:
            check_node_affinity(NodeAffinity(required=wire.node_selector), "status.allocation.nodeSelector")
            reach = reach_of(wire.node_selector)
        except SpecError as error:
            errors.append(str(error))
    return AllocatedDevices(tuple(uses), reach, "; ".join(errors))
