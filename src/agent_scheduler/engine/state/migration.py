"""Translates in-tree volumes to the CSI drivers that replace their plugins (KEP-625): driver, handle and topology.

Two plugins need this. NodeVolumeLimits counts such a volume for the driver. VolumeBinding reads the volume's node
affinity, or its labels if it has none, with the driver's topology key, on nodes whose CSINode reports the plugin as
migrated. Drivers also exist for vSphere and Azure Files, but kube-scheduler does not translate these volumes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from agent_scheduler.objects import storage, wire

#: In-tree plugin -> the CSI driver that replaces it.
CSI_DRIVERS: Mapping[str, str] = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}

#: In-tree plugin -> the driver's label of zones; volumes of other plugins keep their node affinity.
_ZONE_KEYS: Mapping[str, str] = {
    "kubernetes.io/aws-ebs": "topology.ebs.csi.aws.com/zone",
    "kubernetes.io/gce-pd": "topology.gke.io/zone",
    "kubernetes.io/cinder": "topology.cinder.csi.openstack.org/zone",
}

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = ("failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region")
#: The separator of the zones in a label with several.
SEPARATOR: Final = "__"
_UNKNOWN: Final = "UNSPECIFIED"


class InTree(NamedTuple):
    """A volume of an in-tree plugin, with its CSI driver and handle."""

    plugin: str
    driver: str
    handle: str


def in_tree_volume(
    source: storage.PodVolume | storage.PersistentVolumeSpec, labels: Mapping[str, str] | None = None
) -> InTree | None:
    """Return the in-tree volume of `source`, if any. A PersistentVolume's `labels` have the zones of a GCE disk."""
    found: tuple[str, str | None] | None = None
    if source.aws_elastic_block_store is not None:
        found = "kubernetes.io/aws-ebs", _ebs_handle(source.aws_elastic_block_store.volume_id)
    elif source.gce_persistent_disk is not None:
        found = "kubernetes.io/gce-pd", _gce_handle(source.gce_persistent_disk.pd_name, labels or {})
    elif source.azure_disk is not None:
        found = "kubernetes.io/azure-disk", source.azure_disk.disk_uri
    elif source.cinder is not None:
        found = "kubernetes.io/cinder", source.cinder.volume_id
    elif source.portworx_volume is not None:
        found = "kubernetes.io/portworx-volume", source.portworx_volume.volume_id
    if found is None or found[1] is None:
        return None
    plugin, handle = found
    return InTree(plugin, CSI_DRIVERS[plugin], handle or "")


def _ebs_handle(volume_id: str) -> str | None:
    """Return the volume's ID: aws://zone/vol-1 and vol-1 are the same volume; None for an invalid URL."""
    if not volume_id.startswith("aws://"):
        return volume_id
    path = volume_id.removeprefix("aws://").partition("/")[2].strip("/")
    return path if path.startswith("vol-") and "/" not in path else None


def _gce_handle(disk: str, labels: Mapping[str, str]) -> str | None:
    """Return the disk's handle; with several zones, that of their region. None if the zones have different regions."""
    zones = (labels.get(BETA_ZONE) or labels.get(ZONE) or _UNKNOWN).split(SEPARATOR)
    if len(zones) == 1:
        return f"projects/{_UNKNOWN}/zones/{zones[0]}/disks/{disk}"
    regions = {zone.rpartition("-")[0] if zone.count("-") == 2 else "" for zone in zones}
    if len(regions) > 1 or "" in regions:
        return None
    return f"projects/{_UNKNOWN}/regions/{regions.pop()}/disks/{disk}"


def driver_affinity(
    plugin: str, required: wire.NodeSelector | None, labels: Mapping[str, str]
) -> wire.NodeSelector | None:
    """Return the node affinity of a migrated volume, from its own node affinity and its labels."""
    key = _ZONE_KEYS.get(plugin)
    if key is None:
        return required
    terms = list(required.node_selector_terms or ()) if required is not None else []
    asked = {each.key for term in terms for each in term.match_expressions or ()}
    if ZONE in asked or (BETA_ZONE not in asked and (ZONE in labels or BETA_ZONE not in labels)):
        zone, renamed = ZONE, {ZONE: key}
    else:
        zone, renamed = BETA_ZONE, {BETA_ZONE: key, BETA_REGION: REGION}
    if not _values(terms, zone):
        del renamed[zone]
        zones = sorted({part.strip() for part in labels.get(zone, "").split(SEPARATOR)} - {""})
        if zones:
            among = wire.SelectorRequirement(key, "In", zones)
            terms = [
                msgspec.structs.replace(term, match_expressions=[*(term.match_expressions or ()), among])
                for term in terms or [wire.NodeSelectorTerm()]
            ]
    if renamed:
        terms = [_renamed(term, renamed) for term in terms]
    return wire.NodeSelector(terms) if terms or required is not None else None


def _values(terms: list[wire.NodeSelectorTerm], key: str) -> bool:
    """Return whether any term has a value for the label."""
    return any(each.key == key and each.values for term in terms for each in term.match_expressions or ())


def _renamed(term: wire.NodeSelectorTerm, keys: Mapping[str, str]) -> wire.NodeSelectorTerm:
    expressions = [
        msgspec.structs.replace(each, key=keys.get(each.key, each.key)) for each in term.match_expressions or ()
    ]
    return msgspec.structs.replace(term, match_expressions=expressions or term.match_expressions)
