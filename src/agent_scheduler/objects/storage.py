"""Typed partial views of the objects that determine where a pod's volumes are or may be created.

As in `wire`, only fields that decisions need are declared, and the others are skipped at no cost.
"""

from __future__ import annotations

import msgspec

from apimachinery.wire import Quantity, Resources, Wire

from .wire import LabelSelector, Metadata, NodeSelector, ResourceRequirements

# ---- a pod's spec.volumes


class ClaimSource(Wire, frozen=True):
    claim_name: str = ""


class EphemeralSource(Wire, frozen=True):
    """A claim created for the pod; only the controller needs its template."""


class GCEPersistentDisk(Wire, frozen=True):
    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStore(Wire, frozen=True):
    volume_id: str = msgspec.field(default="", name="volumeID")


class AzureDisk(Wire, frozen=True):
    disk_uri: str = msgspec.field(default="", name="diskURI")


class Cinder(Wire, frozen=True):
    volume_id: str = msgspec.field(default="", name="volumeID")


class PortworxVolume(Wire, frozen=True):
    volume_id: str = msgspec.field(default="", name="volumeID")


class ISCSI(Wire, frozen=True):
    iqn: str = ""
    read_only: bool = False


class RBD(Wire, frozen=True):
    monitors: list[str] | None = None
    pool: str = ""
    image: str = ""
    read_only: bool = False


class CSISource(Wire, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class ImageSource(Wire, frozen=True):
    """An image whose files are mounted (KEP-4639)."""

    reference: str = ""


class PodVolume(Wire, frozen=True):
    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    cinder: Cinder | None = None
    portworx_volume: PortworxVolume | None = None
    iscsi: ISCSI | None = None
    rbd: RBD | None = None
    image: ImageSource | None = None


# ---- core/v1


class PersistentVolumeClaimSpec(Wire, frozen=True):
    access_modes: list[str] | None = None
    selector: LabelSelector | None = None
    resources: ResourceRequirements | None = None
    volume_name: str | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(Wire, frozen=True):
    phase: str = ""


class PersistentVolumeClaim(Wire, frozen=True):
    metadata: Metadata
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class ObjectReference(Wire, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = None


class PersistentVolumeSpec(Wire, frozen=True):
    capacity: Resources | None = None
    access_modes: list[str] | None = None
    claim_ref: ObjectReference | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSISource | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    cinder: Cinder | None = None
    portworx_volume: PortworxVolume | None = None


class PersistentVolumeStatus(Wire, frozen=True):
    phase: str = ""


class PersistentVolume(Wire, frozen=True):
    metadata: Metadata
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


# ---- storage.k8s.io/v1


class TopologyExpression(Wire, frozen=True):
    key: str = ""
    values: list[str] | None = None


class TopologyTerm(Wire, frozen=True):
    match_label_expressions: list[TopologyExpression] | None = None


class StorageClass(Wire, frozen=True):
    metadata: Metadata
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None


class NodeResources(Wire, frozen=True):
    count: int | None = None


class CSINodeDriver(Wire, frozen=True):
    name: str = ""
    allocatable: NodeResources | None = None


class CSINodeSpec(Wire, frozen=True):
    drivers: list[CSINodeDriver] | None = None


class CSINode(Wire, frozen=True):
    metadata: Metadata
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Wire, frozen=True):
    storage_capacity: bool | None = None


class CSIDriver(Wire, frozen=True):
    metadata: Metadata
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Wire, frozen=True):
    metadata: Metadata
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class AttachmentSource(Wire, frozen=True):
    persistent_volume_name: str | None = None


class AttachmentSpec(Wire, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(Wire, frozen=True):
    metadata: Metadata
    spec: AttachmentSpec = AttachmentSpec()
