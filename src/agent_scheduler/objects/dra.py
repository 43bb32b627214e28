"""Typed partial views of the objects of dynamic resource allocation (resource.k8s.io/v1).

As in `wire`, only fields that decisions need are declared, and the others are skipped at no cost. A claim's spec
stays bytes, because all claims of a template share it and it is decoded once for all (`engine.state.claimspec`).
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from apimachinery.wire import Quantity, Wire

from .wire import Metadata, NodeSelector

# ---- requests


class CELSelector(Wire, frozen=True):
    expression: str = ""


class DeviceSelector(Wire, frozen=True):
    cel: CELSelector | None = None


class DeviceToleration(Wire, frozen=True):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class CapacityRequirements(Wire, frozen=True):
    requests: dict[str, Quantity] | None = None


class ExactRequest(Wire, frozen=True):
    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str | None = None
    count: int | None = None
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] | None = None
    capacity: CapacityRequirements | None = None


class SubRequest(Wire, frozen=True):
    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str | None = None
    count: int | None = None
    tolerations: list[DeviceToleration] | None = None
    capacity: CapacityRequirements | None = None


class DeviceRequest(Wire, frozen=True):
    name: str = ""
    exactly: ExactRequest | None = None
    first_available: list[SubRequest] | None = None


class DeviceConstraint(Wire, frozen=True):
    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class ClaimConfiguration(Wire, frozen=True):
    requests: list[str] | None = None
    opaque: Raw = Raw()


class DeviceClaim(Wire, frozen=True):
    requests: list[DeviceRequest] | None = None
    constraints: list[DeviceConstraint] | None = None
    config: list[ClaimConfiguration] | None = None


class ResourceClaimSpec(Wire, frozen=True):
    devices: DeviceClaim = DeviceClaim()


# ---- allocations


class DeviceResult(Wire, frozen=True):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, Quantity] | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None


class DeviceResults(Wire, frozen=True):
    results: list[DeviceResult] | None = None


class AllocationResult(Wire, frozen=True):
    devices: DeviceResults = DeviceResults()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class DeviceCondition(Wire, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class AllocatedDeviceStatus(Wire, frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: list[DeviceCondition] | None = None


class ConsumerReference(Wire, frozen=True):
    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimStatus(Wire, frozen=True):
    allocation: AllocationResult | None = None
    reserved_for: list[ConsumerReference] | None = None
    devices: list[AllocatedDeviceStatus] | None = None


class ClaimMetadata(Metadata, frozen=True):
    finalizers: list[str] | None = None


class ResourceClaim(Wire, frozen=True):
    metadata: ClaimMetadata
    spec: Raw = Raw()
    status: ResourceClaimStatus = ResourceClaimStatus()


# ---- classes


class ClassConfiguration(Wire, frozen=True):
    opaque: Raw = Raw()


class DeviceClassSpec(Wire, frozen=True):
    selectors: list[DeviceSelector] | None = None
    config: list[ClassConfiguration] | None = None
    extended_resource_name: str | None = None


class DeviceClass(Wire, frozen=True):
    metadata: Metadata
    spec: DeviceClassSpec = DeviceClassSpec()


# ---- devices


class DeviceAttribute(Wire, frozen=True):
    """An attribute. One of the fields is set; with none, its kind is unknown here."""

    number: int | None = msgspec.field(default=None, name="int")
    truth: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None


class ValidRange(Wire, frozen=True):
    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class RequestPolicy(Wire, frozen=True):
    default: Quantity | None = None
    valid_values: list[Quantity] | None = None
    valid_range: ValidRange | None = None


class DeviceCapacity(Wire, frozen=True):
    value: Quantity = "0"
    request_policy: RequestPolicy | None = None


class Counter(Wire, frozen=True):
    value: Quantity = "0"


class CounterSet(Wire, frozen=True):
    name: str = ""
    counters: dict[str, Counter] | None = None


class CounterConsumption(Wire, frozen=True):
    counter_set: str = ""
    counters: dict[str, Counter] | None = None


class DeviceTaint(Wire, frozen=True):
    key: str = ""
    value: str | None = None
    effect: str = ""


class Device(Wire, frozen=True):
    name: str = ""
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    consumes_counters: list[CounterConsumption] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[DeviceTaint] | None = None
    binds_to_node: bool | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    allow_multiple_allocations: bool | None = None


class ResourcePool(Wire, frozen=True):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Wire, frozen=True):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: list[Device] | None = None
    shared_counters: list[CounterSet] | None = None


class ResourceSlice(Wire, frozen=True):
    metadata: Metadata
    spec: ResourceSliceSpec = ResourceSliceSpec()
