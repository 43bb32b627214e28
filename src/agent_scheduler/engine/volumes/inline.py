"""Volumes that name their disk themselves, in a pod or a PersistentVolume, the way it was before CSI.

Two things are read from them: which disk it is, because some must not be mounted twice on a node; and which CSI driver
serves the in-tree plugin by now, because such a volume counts among those that the driver can attach (KEP-625).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from agent_scheduler.objects import storage

#: In-tree plugin -> the CSI driver that took over.
CSI_DRIVERS: Mapping[str, str] = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
}

_ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")


class InTree(NamedTuple):
    """A volume of an in-tree plugin, with the driver and the handle that it has where CSI serves it."""

    plugin: str
    driver: str
    handle: str


class Disk(NamedTuple):
    """A disk that pods name themselves. `monitors` tells Ceph clusters apart; empty for other kinds."""

    kind: str
    name: str
    monitors: frozenset[str]
    read_only: bool


def in_tree_volume(
    source: storage.PodVolume | storage.VolumeSpec, labels: Mapping[str, str]
) -> InTree | None:
    """The in-tree volume that `source` names, if any; `labels` of a PersistentVolume tell the zone of a GCE disk."""
    if source.aws_elastic_block_store is not None:
        # aws://zone/vol-1 and vol-1 are one volume.
        return _in_tree("kubernetes.io/aws-ebs", source.aws_elastic_block_store.volume_id.rpartition("/")[2])
    if source.gce_persistent_disk is not None:
        zone = next((labels[key] for key in _ZONE_LABELS if key in labels), "UNSPECIFIED")
        name = source.gce_persistent_disk.pd_name
        return _in_tree("kubernetes.io/gce-pd", f"projects/UNSPECIFIED/zones/{zone}/disks/{name}")
    if source.azure_disk is not None:
        return _in_tree("kubernetes.io/azure-disk", source.azure_disk.disk_uri)
    if source.cinder is not None:
        return _in_tree("kubernetes.io/cinder", source.cinder.volume_id)
    return None


def _in_tree(plugin: str, handle: str) -> InTree:
    return InTree(plugin, CSI_DRIVERS[plugin], handle)


def disks_of(volume: storage.PodVolume) -> Iterable[Disk]:
    """The disks that a volume names and that a node may refuse to have twice."""
    if volume.gce_persistent_disk is not None:
        gce = volume.gce_persistent_disk
        yield Disk("gce", gce.pd_name, frozenset(), gce.read_only)
    if volume.aws_elastic_block_store is not None:
        # Never shared, whatever the mounts say.
        yield Disk("aws", volume.aws_elastic_block_store.volume_id, frozenset(), False)
    if volume.iscsi is not None:
        yield Disk("iscsi", volume.iscsi.iqn, frozenset(), volume.iscsi.read_only)
    if volume.rbd is not None:
        rbd = volume.rbd
        # The API server fills in the pool; "rbd" is what it fills in.
        name = f"{rbd.pool or 'rbd'}/{rbd.image}"
        yield Disk("rbd", name, frozenset(rbd.monitors or ()), rbd.read_only)


def conflicts(one: Disk, other: Disk) -> bool:
    """Whether two pods on one node cannot have both: the same disk, unless both only read it."""
    return (
        one.kind == other.kind
        and one.name == other.name
        and (one.kind != "rbd" or not one.monitors.isdisjoint(other.monitors))
        and not (one.read_only and other.read_only)
    )
