"""Objects of storage as the API server sends them, decoded as the product does."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from agent_scheduler.engine.state.podclass import PodClass
from agent_scheduler.engine.state.podvolumes import PodVolumes, pod_volumes
from agent_scheduler.engine.volumes import records
from agent_scheduler.engine.volumes.records import (
    AttachmentInfo,
    CapacityInfo,
    ClaimInfo,
    ClassInfo,
    CSINodeInfo,
    DriverInfo,
    VolumeInfo,
)

Json = dict[str, Any]

_versions = itertools.count(1)


def metadata(name: str, *, namespace: str = "", **more: Any) -> Json:
    return {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": str(next(_versions)), **more}


def encoded(body: Json) -> bytes:
    return msgspec.json.encode(body)


def claim(
    name: str,
    *,
    size: str | None = "1Gi",
    class_name: str | None = "slow",
    volume: str | None = None,
    bound: bool = False,
    selected: str | None = None,
    phase: str = "Pending",
    meta: Json | None = None,
    **spec: Any,
) -> ClaimInfo:
    annotations = {}
    if bound:
        annotations[records.BIND_COMPLETED] = "yes"
    if selected is not None:
        annotations[records.SELECTED_NODE] = selected
    body = {
        "metadata": {**metadata(name, namespace="default", annotations=annotations), **(meta or {})},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size} if size is not None else {}},
            "storageClassName": class_name,
            "volumeName": volume,
            **spec,
        },
        "status": {"phase": phase},
    }
    return records.read_claim(encoded(body))


def volume(
    name: str,
    *,
    size: str = "1Gi",
    class_name: str = "slow",
    on: str | None = None,
    zone: str | None = None,
    claim: Json | None = None,
    phase: str = "Available",
    meta: Json | None = None,
    **spec: Any,
) -> VolumeInfo:
    """Return a volume; `on` is the host that it is local to, `zone` the zone of its node affinity."""
    labels = {"kubernetes.io/hostname": on, "topology.kubernetes.io/zone": zone}
    required = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items() if value is not None]
    if required:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": required}]}}
    body = {
        "metadata": {**metadata(name), **(meta or {})},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name,
            "claimRef": claim,
            **spec,
        },
        "status": {"phase": phase},
    }
    return records.read_volume(encoded(body))


def ref(name: str, *, uid: str | None = None, namespace: str = "default") -> Json:
    """Return a claimRef with the UID that `claim` sets, unless another is given ("" for none)."""
    return {"namespace": namespace, "name": name, "uid": f"uid-{name}" if uid is None else uid}


def storage_class(
    name: str = "slow",
    *,
    provisioner: str = "kubernetes.io/no-provisioner",
    mode: str | None = "WaitForFirstConsumer",
    zones: list[str] | None = None,
) -> ClassInfo:
    body: Json = {"metadata": metadata(name), "provisioner": provisioner, "volumeBindingMode": mode}
    if zones is not None:
        expression = {"key": "topology.kubernetes.io/zone", "values": zones}
        body["allowedTopologies"] = [{"matchLabelExpressions": [expression]}]
    return records.read_class(encoded(body))


def csi_node(name: str, *, migrated: str = "", **limits: int | None) -> CSINodeInfo:
    """Return a CSINode with drivers by keyword; None is a driver without a limit."""
    drivers = [
        {"name": driver, "allocatable": None if count is None else {"count": count}} for driver, count in limits.items()
    ]
    annotations = {records.MIGRATED_PLUGINS: migrated} if migrated else {}
    return records.read_csi_node(
        encoded({"metadata": metadata(name, annotations=annotations), "spec": {"drivers": drivers}})
    )


def driver(name: str, *, tells_capacity: bool = True) -> DriverInfo:
    return records.read_driver(encoded({"metadata": metadata(name), "spec": {"storageCapacity": tells_capacity}}))


def capacity(
    name: str, size: str | None, *, topology: Json | None, class_name: str = "made", most: str | None = None
) -> CapacityInfo:
    body = {
        "metadata": metadata(name, namespace="kube-system"),
        "storageClassName": class_name,
        "nodeTopology": topology,
        "capacity": size,
        "maximumVolumeSize": most,
    }
    return records.read_capacity(encoded(body))


def attachment(name: str, node_name: str, volume_name: str | None, *, driver: str = "ebs") -> AttachmentInfo:
    spec = {"attacher": driver, "nodeName": node_name, "source": {"persistentVolumeName": volume_name}}
    return records.read_attachment(encoded({"metadata": metadata(name), "spec": spec}))


def pod(*claims: str, name: str = "p", uid: str = "uid-p", ephemeral: tuple[str, ...] = (), **more: Json) -> PodVolumes:
    """Return a pod with these claims; `more` are further volumes by name."""
    found = pod_volumes(spec(*claims, ephemeral=ephemeral, **more), namespace="default", name=name, uid=uid)
    assert found is not None
    return found


def spec(*claims: str, ephemeral: tuple[str, ...] = (), **more: Json) -> bytes:
    volumes = [{"name": f"v-{each}", "persistentVolumeClaim": {"claimName": each}} for each in claims]
    volumes += [{"name": each, "ephemeral": {"volumeClaimTemplate": {}}} for each in ephemeral]
    volumes += [{"name": each, **source} for each, source in more.items()]
    return msgspec.json.encode(volumes)


def class_of(volumes: PodVolumes | None) -> PodClass:
    """Return the class of a pod with nothing but its volumes."""
    return PodClass(
        requests={}, nonzero=(0, 0), host_ports=(), node_selector={}, affinity=None, tolerations=(), volumes=volumes
    )
