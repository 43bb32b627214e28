"""Whether a pod could have its volumes on a node, read plainly from the API's own objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import orjson

from tests.unit.engine.world import plain_term

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from embedded_kubernetes.store import Store

    from .world import World

BOUND = "pv.kubernetes.io/bind-completed"
_ZONE = "topology.kubernetes.io/zone"
_SELECTED = "volume.kubernetes.io/selected-node"

Json = dict[str, Any]

#: Store -> its version, and the collections that were read of it.
_READ: WeakKeyDictionary[Store, tuple[int, dict[tuple[str, str], dict[str, Json]]]] = WeakKeyDictionary()


def has_its_volumes(world: World, pod: Json, node: Json) -> bool:
    """For pods with one claim each, as scenarios make them: two might want one volume."""
    if not claims_of(pod):
        return True
    there = [
        each
        for each in _objects(world, "", "pods").values()
        if each["spec"].get("nodeName") == node["metadata"]["name"]
        and each["status"].get("phase") not in ("Succeeded", "Failed")
    ]
    return not _attaches_too_many(world, pod, node, there) and all(
        _has_claim(world, pod, source["claimName"], node)
        for volume in pod["spec"].get("volumes") or ()
        if (source := volume.get("persistentVolumeClaim")) is not None
    )


def _objects(world: World, group: str, plural: str) -> dict[str, Json]:
    """By their names, as they are. Not to be changed: whoever asks before something is written gets the same ones."""
    store = world.store
    version, read = _READ.get(store, (-1, {}))
    if version != store.rv:
        read = {}
        _READ[store] = store.rv, read
    found = read.get((group, plural))
    if found is None:
        records = store.tables[group, plural].scan("")
        found = read[group, plural] = {record.name: orjson.loads(record.data) for record in records}
    return found


def _has_claim(world: World, pod: Json, name: str, node: Json) -> bool:
    claim = _objects(world, "", "persistentvolumeclaims").get(name)
    if claim is None or "deletionTimestamp" in claim["metadata"]:
        return False
    spec, annotations = claim["spec"], claim["metadata"].get("annotations", {})
    if "ReadWriteOncePod" in spec["accessModes"] and _is_used(world, pod, name):
        return False
    volumes = _objects(world, "", "persistentvolumes")
    if BOUND in annotations:
        volume = volumes.get(spec["volumeName"])
        return volume is not None and _reaches(volume, node) and not _is_elsewhere(volume, node)
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


def _is_elsewhere(volume: Json, node: Json) -> bool:
    """Whether a label of the volume names another zone than the node's; a node without one has all volumes."""
    zone, here = ((each["metadata"].get("labels") or {}).get(_ZONE) for each in (volume, node))
    return zone is not None and here is not None and zone != here


# ---- what a reservation has to keep to


def breaks_volume_rules(
    world: World,
    pod: Json,
    node: Json,
    placed: Mapping[str, Sequence[Json]],
    known: Collection[str],
    csi_nodes: Collection[str],
) -> str:
    """Which rule of volumes a process breaks that puts the pod on the node beside `placed`, pods by their nodes.
    `known`: UIDs of claims that it knows to be bound; `csi_nodes`: names of nodes of which it has the limits."""
    named = claims_of(pod)
    if not named:
        return ""
    claims, volumes = _objects(world, "", "persistentvolumeclaims"), _objects(world, "", "persistentvolumes")
    for name in named & claims.keys():
        claim = claims[name]
        if claim["metadata"]["uid"] in known:
            volume = volumes.get(claim["spec"]["volumeName"])
            if volume is not None and (not _reaches(volume, node) or _is_elsewhere(volume, node)):
                return f"the volume of {name} cannot be reached from there"
        users = [each for pods in placed.values() for each in pods if name in claims_of(each)]
        if "ReadWriteOncePod" in claim["spec"]["accessModes"] and users:
            return f"the claim {name} is for one pod, and {users[0]['metadata']['name']} has it"
    name = node["metadata"]["name"]
    return _attaches_too_many(world, pod, node, placed[name]) if name in csi_nodes else ""


def unreachable(world: World, pod: Json, node: Json) -> str:
    """The name of a bound claim of the pod whose volume's affinity does not admit the node."""
    claims, volumes = _objects(world, "", "persistentvolumeclaims"), _objects(world, "", "persistentvolumes")
    for name in claims_of(pod) & claims.keys():
        volume = volumes.get(claims[name]["spec"].get("volumeName", ""))
        if volume is not None and not _reaches(volume, node):
            return name
    return ""


def _attaches_too_many(world: World, pod: Json, node: Json, beside: Sequence[Json]) -> str:
    named = claims_of(pod)
    if not named:
        return ""
    claims = _objects(world, "", "persistentvolumeclaims")
    wanted = {name: driver for name in named & claims.keys() if (driver := _driver(world, claims[name]))}
    there = set().union(*map(claims_of, beside)) & claims.keys()
    for driver in set(wanted.values()):
        most = attachable(world, node["metadata"]["name"], driver)
        attached = {name for name in there if _driver(world, claims[name]) == driver}
        new = {name for name, of in wanted.items() if of == driver} - attached
        if most is not None and new and len(attached | new) > most:
            return f"{len(attached | new)} volumes of {driver} are too many: {most} can be attached"
    return ""


def claims_of(pod: Json) -> set[str]:
    return {
        source["claimName"]
        for volume in pod["spec"].get("volumes") or ()
        if (source := volume.get("persistentVolumeClaim")) is not None
    }


def _driver(world: World, claim: Json) -> str:
    """What attaches the claim's volume; nothing for a local one."""
    found = _objects(world, "storage.k8s.io", "storageclasses").get(claim["spec"]["storageClassName"])
    provisioner = "" if found is None else str(found["provisioner"])
    return "" if provisioner == "kubernetes.io/no-provisioner" else provisioner


def attachable(world: World, node: str, driver: str) -> int | None:
    """How many volumes of the driver the node can have attached; None for any number."""
    found = _objects(world, "storage.k8s.io", "csinodes").get(node)
    limits = {} if found is None else {each["name"]: each for each in found["spec"].get("drivers") or ()}
    count: int | None = (limits.get(driver, {}).get("allocatable") or {}).get("count")
    return count
