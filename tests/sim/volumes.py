"""Whether a pod could have its volumes on a node, read plainly from the API's own objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from tests.unit.engine.world import plain_term

if TYPE_CHECKING:
    from .world import World

_BOUND = "pv.kubernetes.io/bind-completed"
_SELECTED = "volume.kubernetes.io/selected-node"

Json = dict[str, Any]


def has_its_volumes(world: World, pod: Json, node: Json) -> bool:
    """For pods with one claim each, as scenarios make them: two might want one volume."""
    return all(
        _has_claim(world, pod, source["claimName"], node)
        for volume in pod["spec"].get("volumes") or ()
        if (source := volume.get("persistentVolumeClaim")) is not None
    )


def _objects(world: World, group: str, plural: str) -> dict[str, Json]:
    return {record.name: orjson.loads(record.data) for record in world.store.tables[group, plural].scan("")}


def _has_claim(world: World, pod: Json, name: str, node: Json) -> bool:
    claim = _objects(world, "", "persistentvolumeclaims").get(name)
    if claim is None or "deletionTimestamp" in claim["metadata"]:
        return False
    spec, annotations = claim["spec"], claim["metadata"].get("annotations", {})
    if "ReadWriteOncePod" in spec["accessModes"] and _is_used(world, pod, name):
        return False
    volumes = _objects(world, "", "persistentvolumes")
    if _BOUND in annotations:
        return spec["volumeName"] in volumes and _reaches(volumes[spec["volumeName"]], node)
    found = _objects(world, "storage.k8s.io", "storageclasses").get(spec["storageClassName"])
    if found is None or found["volumeBindingMode"] != "WaitForFirstConsumer" or spec.get("volumeName"):
        return False
    made = found["provisioner"] != "kubernetes.io/no-provisioner"
    if _SELECTED in annotations:
        return made and annotations[_SELECTED] == node["metadata"]["name"]
    uid = claim["metadata"]["uid"]
    meant = [each for each in volumes.values() if (each["spec"].get("claimRef") or {}).get("uid") == uid]
    free = [
        each
        for each in volumes.values()
        if not each["spec"].get("claimRef")
        and each["spec"]["storageClassName"] == spec["storageClassName"]
        and each["status"]["phase"] == "Available"
    ]
    return made or any(_reaches(each, node) for each in meant or free)


def _is_used(world: World, pod: Json, claim: str) -> bool:
    return any(
        each["spec"].get("nodeName")
        and each["status"].get("phase") not in ("Succeeded", "Failed")
        and each["metadata"]["uid"] != pod["metadata"]["uid"]
        and any(
            (volume.get("persistentVolumeClaim") or {}).get("claimName") == claim
            for volume in each["spec"].get("volumes") or ()
        )
        for each in _objects(world, "", "pods").values()
    )


def _reaches(volume: Json, node: Json) -> bool:
    affinity = volume["spec"].get("nodeAffinity")
    return affinity is None or any(
        plain_term(term, node) for term in affinity["required"]["nodeSelectorTerms"]
    )
