"""In-tree volumes as the CSI drivers that took over their plugins know them (KEP-625): driver, handle and topology.

Two rules ask. NodeVolumeLimits counts such a volume for the driver. VolumeBinding reads the volume's node affinity, or
in its absence the labels, with the topology key of the driver, on nodes whose CSINode says that the plugin is migrated.
vSphere's and Azure Files' volumes have drivers, too, but kube-scheduler does not ask for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from agent_scheduler.objects import storage, wire

#: In-tree plugin -> the CSI driver that took over.
CSI_DRIVERS: Mapping[str, str] = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}

#: In-tree plugin -> the label by which its driver tells zones apart; the others' volumes keep their node affinity.
_ZONE_KEYS: Mapping[str, str] = {
    "kubernetes.io/aws-ebs": "topology.ebs.csi.aws.com/zone",
    "kubernetes.io/gce-pd": "topology.gke.io/zone",
    "kubernetes.io/cinder": "topology.cinder.csi.openstack.org/zone",
}

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = (
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
#: Between the zones of a label that names several.
SEPARATOR: Final = "__"
_UNKNOWN: Final = "UNSPECIFIED"


class InTree(NamedTuple):
    """A volume of an in-tree plugin, with the driver and the handle that it has by now."""

    plugin: str
    driver: str
    handle: str


def in_tree_volume(
    source: storage.PodVolume | storage.VolumeSpec, labels: Mapping[str, str] | None = None
) -> InTree | None:
    """The in-tree volume that `source` names, if any. `labels` of a PersistentVolume tell where a GCE disk is."""
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
    """aws://zone/vol-1 and vol-1 are one volume; None for a URL that names none."""
    if not volume_id.startswith("aws://"):
        return volume_id
    path = volume_id.removeprefix("aws://").partition("/")[2].strip("/")
    return path if path.startswith("vol-") and "/" not in path else None


def _gce_handle(disk: str, labels: Mapping[str, str]) -> str | None:
    """A disk of several zones is one of their region; None if these have no region in common."""
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
    """The node affinity that a migrated volume has, made of the one it was given and of its labels."""
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
            among = wire.Requirement(key, "In", zones)
            terms = [
                msgspec.structs.replace(term, match_expressions=[*(term.match_expressions or ()), among])
                for term in terms or [wire.NodeSelectorTerm()]
            ]
    if renamed:
        terms = [_renamed(term, renamed) for term in terms]
    return wire.NodeSelector(terms) if terms or required is not None else None


def _values(terms: list[wire.NodeSelectorTerm], key: str) -> bool:
    """Whether any term names a value of the label."""
    return any(each.key == key and each.values for term in terms for each in term.match_expressions or ())


def _renamed(term: wire.NodeSelectorTerm, keys: Mapping[str, str]) -> wire.NodeSelectorTerm:
    expressions = [
        msgspec.structs.replace(each, key=keys.get(each.key, each.key))
        for each in term.match_expressions or ()
    ]
    return msgspec.structs.replace(term, match_expressions=expressions or term.match_expressions)
