"""Storage objects in the form that decisions read, compiled once from each change.

Values compare by content, so that a relevant change differs from a new resourceVersion. Quantities are bytes, rounded
up. An invalid one counts as the maximum if it is requested and as zero if it is offered. `gc=False` of the records is
safe: none is in a reference cycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from agent_scheduler.objects import storage, wire
from apimachinery.labels import LabelSelector, Requirement
from apimachinery.quantity import MAX_INT64, QuantityError, value
from apimachinery.wire import Quantity

from ..state.labelselector import label_selector
from ..state.migration import driver_affinity, in_tree_volume
from ..state.podspec import SpecError, check_node_affinity
from ..state.podvolumes import ClaimKey
from ..state.reach import Reach, reach_of
from ..state.records import Record, identity, reader

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"
#: Older than `spec.storageClassName`, and overrides it.
_CLASS: Final = "volume.beta.kubernetes.io/storage-class"

WAIT_FOR_CONSUMER: Final = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"

#: An invalid selector selects nothing; no label key has a NUL.
_NOTHING: Final = LabelSelector((Requirement("\0", "Exists", frozenset()),))

_NONE: Mapping[str, str] = {}


class ClaimRef(NamedTuple):
    """The claim that a volume is for. With an empty `uid`: any claim with the name."""

    namespace: str
    name: str
    uid: str


class ClaimInfo(Record, frozen=True, gc=False, kw_only=True):
    class_name: str
    #: The volume that it names, bound or requested; empty if none.
    volume_name: str
    access_modes: frozenset[str]
    #: Bytes; None if unset.
    requested: int | None
    volume_mode: str
    attributes_class: str
    selector: LabelSelector | None
    selected_node: str | None
    bind_completed: bool
    lost: bool
    deleting: bool
    #: UID of the controlling object.
    controller: str

    @property
    def key(self) -> ClaimKey:
        return self.namespace, self.name

    @property
    def bound(self) -> bool:
        """Whether the volume controller has finished with it."""
        return bool(self.volume_name) and self.bind_completed


class VolumeInfo(Record, frozen=True, gc=False, kw_only=True):
    labels: Mapping[str, str]
    class_name: str
    capacity: int
    access_modes: frozenset[str]
    volume_mode: str
    attributes_class: str
    claim_ref: ClaimRef | None
    #: The nodes that can reach it; None for all.
    reach: Reach | None
    #: The same on nodes where a CSI driver has replaced its plugin; `reach` itself if that makes no difference.
    migrated_reach: Reach | None
    by_controller: bool
    #: Whether its phase allows a bind.
    available: bool
    deleting: bool
    driver: str
    handle: str
    #: Name of the in-tree plugin; empty for a volume created as CSI.
    plugin: str


class ClassInfo(Record, frozen=True, gc=False, kw_only=True):
    provisioner: str
    #: None if unset, which the API server prevents.
    binding_mode: str | None
    #: The nodes for which its volumes may be provisioned; None for all.
    reach: Reach | None


class CSINodeInfo(Record, frozen=True, gc=False, kw_only=True):
    #: driver -> the number of volumes that it can attach, for drivers with a limit.
    limits: Mapping[str, int]
    #: In-tree plugins whose volumes CSI drivers serve there.
    migrated: frozenset[str]


class DriverInfo(Record, frozen=True, gc=False, kw_only=True):
    #: Whether it reports its capacity (`spec.storageCapacity`), which then limits provisioning.
    tells_capacity: bool


class CapacityInfo(Record, frozen=True, gc=False, kw_only=True):
    class_name: str
    #: The largest volume that can be provisioned, in bytes; -1 if none can.
    limit: int
    #: Remaining bytes, for scores; 0 if unset.
    capacity: int
    #: The nodes that have access; None for all.
    reach: Reach | None


class AttachmentInfo(Record, frozen=True, gc=False, kw_only=True):
    driver: str
    node_name: str
    volume_name: str


def claim_info(claim: storage.PersistentVolumeClaim) -> ClaimInfo:
    metadata, spec = claim.metadata, claim.spec
    annotations = metadata.annotations or _NONE
    requests = (spec.resources.requests if spec.resources else None) or {}
    return ClaimInfo(
        **identity(metadata),
        class_name=annotations.get(_CLASS, spec.storage_class_name or ""),
        volume_name=spec.volume_name or "",
        access_modes=frozenset(spec.access_modes or ()),
        requested=_bytes(requests["storage"], MAX_INT64) if "storage" in requests else None,
        volume_mode=spec.volume_mode or "Filesystem",
        attributes_class=spec.volume_attributes_class_name or "",
        selector=_selector(spec.selector, "spec.selector"),
        selected_node=annotations.get(SELECTED_NODE),
        bind_completed=BIND_COMPLETED in annotations,
        lost=claim.status.phase == "Lost",
        deleting=metadata.deletion_timestamp is not None,
        controller=next((owner.uid for owner in metadata.owner_references or () if owner.controller), ""),
    )


def volume_info(volume: storage.PersistentVolume) -> VolumeInfo:
    metadata, spec = volume.metadata, volume.spec
    annotations = metadata.annotations or _NONE
    ref = spec.claim_ref
    plugin, driver, handle = in_tree_volume(spec, metadata.labels or _NONE) or ("", "", "")
    if spec.csi is not None:
        plugin, driver, handle = "", spec.csi.driver, spec.csi.volume_handle
    required = spec.node_affinity.required if spec.node_affinity else None
    reach = migrated_reach = _readable(required)
    if plugin and (affinity := driver_affinity(plugin, required, metadata.labels or _NONE)) is not required:
        migrated_reach = _readable(affinity)
    return VolumeInfo(
        **identity(metadata),
        labels=metadata.labels or _NONE,
        class_name=annotations.get(_CLASS, spec.storage_class_name or ""),
        capacity=_bytes((spec.capacity or {}).get("storage", 0), 0),
        access_modes=frozenset(spec.access_modes or ()),
        volume_mode=spec.volume_mode or "Filesystem",
        attributes_class=spec.volume_attributes_class_name or "",
        claim_ref=ClaimRef(ref.namespace, ref.name, ref.uid) if ref is not None else None,
        reach=reach,
        migrated_reach=migrated_reach,
        by_controller=BOUND_BY_CONTROLLER in annotations,
        available=volume.status.phase == "Available",
        deleting=metadata.deletion_timestamp is not None,
        driver=driver,
        handle=handle,
        plugin=plugin,
    )


def class_info(each: storage.StorageClass) -> ClassInfo:
    reach = None
    if each.allowed_topologies:
        terms = [
            wire.NodeSelectorTerm(
                [wire.SelectorRequirement(part.key, "In", part.values) for part in term.match_label_expressions]
            )
            for term in each.allowed_topologies
            # A term without expressions, or that no value satisfies, allows nothing.
            if term.match_label_expressions and all(part.values for part in term.match_label_expressions)
        ]
        reach = reach_of(wire.NodeSelector(terms))
    return ClassInfo(
        **identity(each.metadata), provisioner=each.provisioner, binding_mode=each.volume_binding_mode, reach=reach
    )


def csi_node_info(node: storage.CSINode) -> CSINodeInfo:
    migrated = (node.metadata.annotations or _NONE).get(MIGRATED_PLUGINS, "")
    return CSINodeInfo(
        **identity(node.metadata),
        limits={
            driver.name: driver.allocatable.count
            for driver in node.spec.drivers or ()
            if driver.allocatable is not None and driver.allocatable.count is not None
        },
        migrated=frozenset(migrated.split(",")) if migrated else frozenset(),
    )


def driver_info(driver: storage.CSIDriver) -> DriverInfo:
    return DriverInfo(**identity(driver.metadata), tells_capacity=bool(driver.spec.storage_capacity))


def capacity_info(capacity: storage.CSIStorageCapacity) -> CapacityInfo:
    # The largest possible volume is more precise than the remaining capacity.
    limit = capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
    selector = _selector(capacity.node_topology, "nodeTopology")
    unreachable = selector is None or selector == _NOTHING
    return CapacityInfo(
        **identity(capacity.metadata),
        class_name=capacity.storage_class_name,
        limit=-1 if unreachable or limit is None else _bytes(limit, -1),
        capacity=0 if capacity.capacity is None else _bytes(capacity.capacity, 0),
        reach=_label_reach(selector) if selector is not None and selector.requirements else None,
    )


def attachment_info(attachment: storage.VolumeAttachment) -> AttachmentInfo:
    spec = attachment.spec
    return AttachmentInfo(
        **identity(attachment.metadata),
        driver=spec.attacher,
        node_name=spec.node_name,
        volume_name=spec.source.persistent_volume_name or "",
    )


read_claim = reader(storage.PersistentVolumeClaim, claim_info)
read_volume = reader(storage.PersistentVolume, volume_info)
read_class = reader(storage.StorageClass, class_info)
read_csi_node = reader(storage.CSINode, csi_node_info)
read_driver = reader(storage.CSIDriver, driver_info)
read_capacity = reader(storage.CSIStorageCapacity, capacity_info)
read_attachment = reader(storage.VolumeAttachment, attachment_info)


def _bytes(quantity: Quantity, unreadable: int) -> int:
    try:
        return value(quantity)
    except QuantityError:
        return unreadable


def _selector(selector: wire.LabelSelector | None, place: str) -> LabelSelector | None:
    try:
        return label_selector(selector, place)
    except SpecError:
        return _NOTHING


def _label_reach(selector: LabelSelector) -> Reach:
    """Convert a label selector; a node selector has all its operators."""
    requirements = [
        wire.SelectorRequirement(key, operator, sorted(values) or None)
        for key, operator, values in selector.requirements
    ]
    return reach_of(wire.NodeSelector([wire.NodeSelectorTerm(requirements)]))


def _readable(selector: wire.NodeSelector | None) -> Reach | None:
    """Return the selector without its invalid terms: such a term matches no node, while the others still may."""
    if selector is None:
        return None
    terms = []
    for term in selector.node_selector_terms or ():
        try:
            check_node_affinity(wire.NodeAffinity(required=wire.NodeSelector([term])), "spec.nodeAffinity")
        except SpecError:
            continue
        terms.append(term)
    return reach_of(wire.NodeSelector(terms))


class VolumeDemand(NamedTuple):
    """The requirements of an unbound claim for a volume without a claim, except the class."""

    #: Bytes.
    size: int
    mode: str
    access_modes: frozenset[str]
    attributes_class: str
    selector: LabelSelector | None


def size_of(volume: VolumeInfo) -> tuple[int, str]:
    return volume.capacity, volume.name


def place_of(capacity: CapacityInfo) -> tuple[str, str]:
    return capacity.namespace, capacity.name


def is_large_enough(capacity: CapacityInfo, size: int) -> bool:
    return capacity.limit >= size


def could_hold(volume: VolumeInfo, size: int, mode: str) -> bool:
    return volume.capacity >= size and volume.volume_mode == mode


def could_be_had(volume: VolumeInfo, demand: VolumeDemand) -> bool:
    return (
        could_hold(volume, demand.size, demand.mode)
        and volume.attributes_class == demand.attributes_class
        and (demand.selector is None or demand.selector.matches(volume.labels))
        and demand.access_modes <= volume.access_modes
    )
