"""Objects of dynamic resource allocation in the form that decisions read, compiled once from each change.

Values compare by content, so that a relevant change differs from a new resourceVersion. No object is dropped: the
invalid part is an `error` that names the place, with which pods that need the object are refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent_scheduler.objects import dra, wire
from apimachinery.quantity import QuantityError

from ..state.amounts import amount
from ..state.claimspec import ClaimSpec, claim_spec
from ..state.extended import CLASS_RESOURCE
from ..state.podclaims import ClaimKey
from ..state.podspec import SpecError, check_node_affinity
from ..state.reach import reach_of
from ..state.records import Record, identity, reader
from .allocation import AllocatedDevices, allocated_devices
from .binding_conditions import BindingConditions, binding_conditions_of
from .devices import DeviceInfo, DeviceLocation, PoolId, device

NOWHERE = DeviceLocation()
#: Keeps a claim from being deleted while its devices are in use (resource.k8s.io's `Finalizer`).
FINALIZER = "resource.kubernetes.io/delete-protection"
#: A claim that is created for the extended resources of a pod, which its spec does not name.
EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"


class Readable(Record, frozen=True, kw_only=True):
    """An object with its `error`: the invalid part and its place; empty if all is valid."""

    error: str = ""


class DeviceClassInfo(Readable, frozen=True, kw_only=True):
    selectors: tuple[str, ...]
    #: The JSON of each `opaque` of its configuration.
    configuration: tuple[bytes, ...]
    extended_resource: str
    created: str

    @property
    def resources(self) -> frozenset[str]:
        """The extended resources that its devices provide: by the name in its spec, and by its own."""
        return frozenset((self.extended_resource, CLASS_RESOURCE + self.name)) - {""}


class SliceInfo(Readable, frozen=True, kw_only=True):
    pool: PoolId
    generation: int
    #: The number of slices of the pool in this generation.
    count: int
    #: The place of its devices, unless they have their own.
    place: DeviceLocation
    devices: tuple[DeviceInfo, ...]
    #: (counter set, counter) -> billionths.
    counters: Mapping[tuple[str, str], int]
    #: Names of its counter sets.
    counter_sets: tuple[str, ...]

    @property
    def has_binding_conditions(self) -> bool:
        """Whether it has devices with binding conditions."""
        return any(device.binding_conditions for device in self.devices)


class ResourceClaimInfo(Readable, frozen=True, kw_only=True):
    spec: ClaimSpec
    #: None while it has no allocation.
    allocation: AllocatedDevices | None
    #: None unless devices of its allocation have binding conditions.
    binding_conditions: BindingConditions | None = None
    #: UIDs of the pods and other consumers that may use it.
    reserved_for: tuple[str, ...]
    deleting: bool
    #: Whether the API server keeps it as long as its devices are in use.
    protected: bool = False
    #: UID of the object that controls it.
    controller: str
    #: Whether it was created for the extended resources of its pod.
    extended: bool = False

    @property
    def key(self) -> ClaimKey:
        return self.namespace, self.name


def claim_info(claim: dra.ResourceClaim, error: str = "") -> ResourceClaimInfo:
    metadata, status = claim.metadata, claim.status
    spec = claim_spec(claim.spec)
    allocation = allocated_devices(status.allocation) if status.allocation is not None else None
    return ResourceClaimInfo(
        **identity(metadata),
        error=error or (allocation.error if allocation is not None else ""),
        spec=spec,
        allocation=allocation,
        binding_conditions=binding_conditions_of(status),
        reserved_for=tuple(each.uid for each in status.reserved_for or ()),
        deleting=metadata.deletion_timestamp is not None,
        protected=FINALIZER in (metadata.finalizers or ()),
        controller=next((owner.uid for owner in metadata.owner_references or () if owner.controller), ""),
        extended=(metadata.annotations or {}).get(EXTENDED_RESOURCE_CLAIM) == "true",
    )


def device_class_info(each: dra.DeviceClass, error: str = "") -> DeviceClassInfo:
    selectors = []
    for index, selector in enumerate(each.spec.selectors or ()):
        if selector.cel is None:
            error = error or f"spec.selectors[{index}]: CEL expression empty (unsupported selector type?)"
        else:
            selectors.append(selector.cel.expression)
    return DeviceClassInfo(
        **identity(each.metadata),
        error=error,
        selectors=tuple(selectors),
        configuration=tuple(bytes(config.opaque) for config in each.spec.config or ()),
        extended_resource=each.spec.extended_resource_name or "",
        created=each.metadata.creation_timestamp or "",
    )


def slice_info(each: dra.ResourceSlice, error: str = "") -> SliceInfo:
    spec = each.spec
    devices: list[DeviceInfo] = []
    counters: dict[tuple[str, str], int] = {}
    place = NOWHERE
    where = "spec"
    try:
        place = _place(spec.node_name, spec.node_selector, spec.all_nodes, "spec.nodeSelector")
        for index, item in enumerate(spec.devices or ()):
            where = f"spec.devices[{index}]"
            own = None
            if spec.per_device_node_selection:
                own = _place(item.node_name, item.node_selector, item.all_nodes, f"{where}.nodeSelector")
            devices.append(device(item, spec.driver, own))
        for index, counter_set in enumerate(spec.shared_counters or ()):
            for name, counter in (counter_set.counters or {}).items():
                where = f"spec.sharedCounters[{index}].counters[{name}]"
                counters[counter_set.name, name] = amount(counter.value).nano
    except QuantityError as problem:
        error = error or f"{where}: {problem}"
    except SpecError as problem:
        error = error or str(problem)
    return SliceInfo(
        **identity(each.metadata),
        error=error,
        pool=PoolId(spec.driver, spec.pool.name),
        generation=spec.pool.generation,
        count=spec.pool.resource_slice_count,
        place=place,
        devices=tuple(devices),
        counters=counters,
        counter_sets=tuple(counter_set.name for counter_set in spec.shared_counters or ()),
    )


read_claim = reader(dra.ResourceClaim, claim_info, claim_info)
read_device_class = reader(dra.DeviceClass, device_class_info, device_class_info)
read_slice = reader(dra.ResourceSlice, slice_info, slice_info)


def _place(
    node_name: str | None, selector: wire.NodeSelector | None, everywhere: bool | None, where: str
) -> DeviceLocation:
    if node_name:
        return DeviceLocation(node_name=node_name)
    if everywhere:
        return DeviceLocation(everywhere=True)
    if selector is None:
        return NOWHERE
    check_node_affinity(wire.NodeAffinity(required=selector), where)
    return DeviceLocation(reach=reach_of(selector))
