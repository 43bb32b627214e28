"""Volumes and what provides them: claims, volumes, storage classes, CSI drivers and nodes, attachments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agent_scheduler.objects.quantity import milli_value

from ..errors import Cause
from ..resource import Object, Resource
from . import names
from .causes import check_one_of, duplicate, forbidden, immutable, invalid, required
from .kind import builtin
from .pod_defaults import default_volume_source
from .selectors import check_label_selector, check_node_selector
from .volumes import (
    VOLUME_MODES,
    check_access_modes,
    check_claim_spec,
    check_driver_name,
    check_host_path,
    check_nfs,
)

_GROUP = "storage.k8s.io"
#: Annotations: the class of a claim in its first form, and that a class is the default one.
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
#: The finalizers that hold a claim and a volume while they are in use.
CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
#: Fields of a PersistentVolume's spec that are not its source.
_NOT_SOURCES = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)


def _default_claim(claim: Object) -> None:
    spec = claim.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    spec.setdefault("resources", {})
    # Two names of one reference: a data source inside the namespace is answered under both.
    source, ref = spec.get("dataSource"), spec.get("dataSourceRef")
    if source and not ref:
        spec["dataSourceRef"] = dict(source)
    elif ref and not source and not ref.get("namespace"):
        spec["dataSource"] = dict(ref)
    status = claim.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = "Pending"


def _protect(finalizer: str, obj: Object) -> None:
    """The StorageObjectInUseProtection admission plugin."""
    finalizers = obj["metadata"].setdefault("finalizers", [])
    if finalizer not in finalizers:
        finalizers.append(finalizer)


def _create_claim(claim: Object) -> None:
    _protect(CLAIM_PROTECTION, claim)


def _check_claim(claim: Object, old: Object | None) -> list[Cause]:
    spec = claim.get("spec") or {}
    causes = check_claim_spec(spec, "spec")
    if old is None:
        return causes
    # The strategy and the check of the update both judge the whole spec.
    causes *= 2
    before: dict[str, Any] = dict(old.get("spec") or {})
    if not before.get("volumeName") and spec.get("volumeName"):
        before["volumeName"] = spec["volumeName"]
    if before.get("storageClassName") is None and "storageClassName" in spec:
        before["storageClassName"] = spec["storageClassName"]
    bound = (claim.get("status") or {}).get("phase") == "Bound"
    changed = {key for key in spec.keys() | before.keys() if spec.get(key) != before.get(key)}
    if bound:
        changed -= {"resources", "volumeAttributesClassName"}
    if changed:
        detail = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for "
            "bound claims"
        )
        causes.append(forbidden("spec", detail))
    now, was = _requested(spec), _requested(before)
    held = ((old.get("status") or {}).get("capacity") or {}).get("storage", "0")
    if milli_value(now) < milli_value(was) and milli_value(now) <= milli_value(held):
        at = "spec.resources.requests.storage"
        causes.append(forbidden(at, "field can not be less than status.capacity"))
    if spec.get("volumeMode") != before.get("volumeMode"):
        causes.append(immutable("volumeMode", spec.get("volumeMode")))
    return causes


def _requested(spec: dict[str, Any]) -> str:
    amount: str = ((spec.get("resources") or {}).get("requests") or {}).get("storage", "0")
    return amount


def wants_default_class(claim: Object) -> bool:
    """Whether a new claim leaves its class open. An empty name is a choice: no class."""
    annotations = claim["metadata"].get("annotations") or {}
    return claim["spec"].get("storageClassName") is None and _BETA_CLASS not in annotations


def use_default_class(claim: Object, classes: Iterable[Object]) -> None:
    """The DefaultStorageClass admission plugin: of several defaults the newest counts, of equal age the first
    by name. Without any the claim stays open until one is made."""
    defaults = [
        found
        for found in classes
        if any((found["metadata"].get("annotations") or {}).get(key) == "true" for key in _DEFAULT_CLASS)
    ]
    if defaults:
        newest = max(found["metadata"]["creationTimestamp"] for found in defaults)
        claim["spec"]["storageClassName"] = min(
            found["metadata"]["name"]
            for found in defaults
            if found["metadata"]["creationTimestamp"] == newest
        )


def _default_volume(volume: Object) -> None:
    spec = volume.setdefault("spec", {})
    if not spec.get("persistentVolumeReclaimPolicy"):
        spec["persistentVolumeReclaimPolicy"] = "Retain"
    spec.setdefault("volumeMode", "Filesystem")
    default_volume_source({key: value for key, value in spec.items() if key not in _NOT_SOURCES})
    status = volume.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = "Pending"


def _create_volume(volume: Object) -> None:
    created = volume["metadata"].get("creationTimestamp")
    volume["status"] = {"phase": "Pending", "lastPhaseTransitionTime": created}
    _protect(VOLUME_PROTECTION, volume)


def _update_volume_status(volume: Object, old: Object) -> None:
    status, before = volume.setdefault("status", {}), old.get("status") or {}
    if status.get("phase") == before.get("phase") and "lastPhaseTransitionTime" in before:
        status.setdefault("lastPhaseTransitionTime", before["lastPhaseTransitionTime"])


def _check_volume(volume: Object, old: Object | None) -> list[Cause]:
    spec = volume.get("spec") or {}
    causes = check_access_modes(spec.get("accessModes") or [], "spec.accessModes")
    capacity = spec.get("capacity") or {}
    if not capacity:
        causes.append(required("spec.capacity"))
    elif "storage" not in capacity or len(capacity) > 1:
        causes.append(
            Cause("FieldValueNotSupported", "spec.capacity", 'Unsupported value: supported values: "storage"')
        )
    for name, amount in capacity.items():
        if milli_value(amount) <= 0:
            causes.append(invalid(f"spec.capacity[{name}]", amount, "must be greater than zero"))
    policy = spec.get("persistentVolumeReclaimPolicy")
    causes += check_one_of("spec.persistentVolumeReclaimPolicy", policy, ("Delete", "Recycle", "Retain"))
    if (affinity := spec.get("nodeAffinity")) is not None:
        if affinity.get("required") is None:
            causes.append(required("spec.nodeAffinity.required", "must specify required node constraints"))
        else:
            causes += check_node_selector(affinity["required"], "spec.nodeAffinity.required")
    sources = [key for key in spec if key not in _NOT_SOURCES and spec[key] is not None]
    if not sources:
        causes.append(required("spec", "must specify a volume type"))
    for place, kind in enumerate(sources):
        at = f"spec.{kind}"
        if place:
            causes.append(forbidden(at, "may not specify more than 1 volume type"))
        elif kind == "hostPath":
            causes += check_host_path(spec[kind], at)
        elif kind == "nfs":
            causes += check_nfs(spec[kind], at)
        elif kind == "csi":
            causes += check_driver_name(spec[kind].get("driver", ""), f"{at}.driver")
            causes += [] if spec[kind].get("volumeHandle") else [required(f"{at}.volumeHandle")]
        elif kind == "local":
            causes += [] if spec[kind].get("path") else [required(f"{at}.path")]
            if spec.get("nodeAffinity") is None:
                causes.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
    if name := spec.get("storageClassName"):
        causes += [invalid("spec.storageClassName", name, problem) for problem in names.subdomain(name)]
    mode = spec.get("volumeMode")
    if mode is not None and mode not in VOLUME_MODES:
        causes += check_one_of("spec.volumeMode", mode, VOLUME_MODES)
    if old is None:
        return causes
    # The strategy and the check of the update both judge the whole spec.
    return causes * 2 + _check_volume_update(spec, old.get("spec") or {})


def _check_volume_update(spec: dict[str, Any], before: dict[str, Any]) -> list[Cause]:
    causes: list[Cause] = []
    now = {key: value for key, value in spec.items() if key not in _NOT_SOURCES}
    if now != {key: value for key, value in before.items() if key not in _NOT_SOURCES}:
        detail = "spec.persistentvolumesource is immutable after creation"
        causes.append(forbidden("spec.persistentvolumesource", detail))
    if spec.get("volumeMode") != before.get("volumeMode"):
        causes.append(immutable("volumeMode", spec.get("volumeMode")))
    if before.get("nodeAffinity") is not None and spec.get("nodeAffinity") != before["nodeAffinity"]:
        causes.append(immutable("nodeAffinity", spec.get("nodeAffinity")))
    return causes


def _default_class(storage_class: Object) -> None:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def _check_class(storage_class: Object, old: Object | None) -> list[Cause]:
    causes: list[Cause] = []
    if old is not None:
        causes += [
            forbidden(field, f"updates to {field} are forbidden.")
            for field in ("parameters", "provisioner", "reclaimPolicy")
            if (storage_class.get(field) or None) != (old.get(field) or None)
        ]
        if storage_class.get("volumeBindingMode") != old.get("volumeBindingMode"):
            causes.append(immutable("volumeBindingMode", storage_class.get("volumeBindingMode")))
        return causes
    provisioner = storage_class.get("provisioner", "")
    if not provisioner:
        causes.append(required("provisioner"))
    else:
        causes += [
            invalid("provisioner", provisioner, problem) for problem in names.qualified(provisioner.lower())
        ]
    if any(not key for key in storage_class.get("parameters") or {}):
        causes.append(invalid("parameters", "", "field can not be empty."))
    causes += check_one_of("reclaimPolicy", storage_class.get("reclaimPolicy"), ("Delete", "Retain"))
    mode = storage_class.get("volumeBindingMode")
    causes += check_one_of("volumeBindingMode", mode, ("Immediate", "WaitForFirstConsumer"))
    for index, term in enumerate(storage_class.get("allowedTopologies") or ()):
        for place, expression in enumerate(term.get("matchLabelExpressions") or ()):
            at = f"allowedTopologies[{index}].matchLabelExpressions[{place}]"
            if not expression.get("values"):
                causes.append(required(f"{at}.values"))
            key = expression.get("key", "")
            causes += [invalid(f"{at}.key", key, problem) for problem in names.qualified(key)]
    return causes


def _check_csi_node(node: Object, old: Object | None) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    drivers = (node.get("spec") or {}).get("drivers") or []
    for index, driver in enumerate(drivers):
        at, name = f"spec.drivers[{index}]", driver.get("name", "")
        if not name:
            causes.append(required(f"{at}.name"))
        else:
            causes += check_driver_name(name, f"{at}.name")
        if name in seen:
            causes.append(duplicate(f"{at}.name", name))
        seen.add(name)
        if not driver.get("nodeID"):
            causes.append(required(f"{at}.nodeID"))
        count = (driver.get("allocatable") or {}).get("count")
        if count is not None and count < 0:
            causes.append(invalid(f"{at}.allocatable.count", count, "must be greater than or equal to 0"))
    return causes


def _default_driver(driver: Object) -> None:
    spec = driver.setdefault("spec", {})
    for field, value in (
        ("attachRequired", True),
        ("podInfoOnMount", False),
        ("storageCapacity", False),
        ("fsGroupPolicy", "ReadWriteOnceWithFSType"),
        ("volumeLifecycleModes", ["Persistent"]),
        ("requiresRepublish", False),
        ("seLinuxMount", False),
    ):
        if field not in spec:
            spec[field] = list(value) if isinstance(value, list) else value


def _check_driver(driver: Object, old: Object | None) -> list[Cause]:
    causes = check_driver_name(driver["metadata"].get("name") or "", "metadata.name")
    spec = driver.get("spec") or {}
    policy = spec.get("fsGroupPolicy")
    if policy is not None:
        allowed = ("File", "None", "ReadWriteOnceWithFSType")
        causes += check_one_of("spec.fsGroupPolicy", policy, allowed)
    for mode in spec.get("volumeLifecycleModes") or ():
        causes += check_one_of("spec.volumeLifecycleModes", mode, ("Ephemeral", "Persistent"))
    if old is not None:
        before = old.get("spec") or {}
        causes += [
            immutable(f"spec.{field}", spec.get(field))
            for field in ("attachRequired", "volumeLifecycleModes")
            if spec.get(field) != before.get(field)
        ]
    return causes


def _check_capacity(capacity: Object, old: Object | None) -> list[Cause]:
    causes: list[Cause] = []
    name = capacity.get("storageClassName", "")
    causes += [invalid("storageClassName", name, problem) for problem in names.subdomain(name)]
    for field in ("capacity", "maximumVolumeSize"):
        if (amount := capacity.get(field)) is not None and milli_value(amount) < 0:
            causes.append(invalid(field, amount, "must be greater than or equal to 0"))
    causes += check_label_selector(capacity.get("nodeTopology"), "nodeTopology")
    if old is not None:
        causes += [
            immutable(field, capacity.get(field))
            for field in ("nodeTopology", "storageClassName")
            if capacity.get(field) != old.get(field)
        ]
    return causes


def _check_attachment(attachment: Object, old: Object | None) -> list[Cause]:
    spec = attachment.get("spec") or {}
    causes: list[Cause] = []
    attacher = spec.get("attacher", "")
    causes += check_driver_name(attacher, "spec.attacher") if attacher else [required("spec.attacher")]
    source = spec.get("source") or {}
    given = [field for field in ("persistentVolumeName", "inlineVolumeSpec") if source.get(field)]
    if len(given) != 1:
        detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
        causes.append(forbidden("spec.source", detail) if given else required("spec.source", detail))
    if not spec.get("nodeName"):
        causes.append(required("spec.nodeName"))
    if old is not None and spec != (old.get("spec") or {}):
        causes.append(immutable("spec", spec))
    return causes


def _check_attributes_class(attributes: Object, old: Object | None) -> list[Cause]:
    causes = [] if attributes.get("driverName") else [required("driverName")]
    if not attributes.get("parameters"):
        causes.append(required("parameters", "must contain at least one key/value pair"))
    if old is not None:
        causes += [
            forbidden(field, f"updates to {field} are forbidden.")
            for field in ("driverName", "parameters")
            if attributes.get(field) != old.get(field)
        ]
    return causes


PERSISTENT_VOLUME_CLAIMS = builtin(
    group="",
    version="v1",
    kind="PersistentVolumeClaim",
    plural="persistentvolumeclaims",
    namespaced=True,
    short_names=("pvc",),
    default=_default_claim,
    check=_check_claim,
    on_create=_create_claim,
    status=True,
    first_status={"phase": "Pending"},
    returns_deleted=True,
)

PERSISTENT_VOLUMES = builtin(
    group="",
    version="v1",
    kind="PersistentVolume",
    rechecks="whole",
    plural="persistentvolumes",
    namespaced=False,
    short_names=("pv",),
    default=_default_volume,
    check=_check_volume,
    on_create=_create_volume,
    status=True,
    on_status=_update_volume_status,
    returns_deleted=True,
)

STORAGE_CLASSES = builtin(
    group=_GROUP,
    version="v1",
    kind="StorageClass",
    plural="storageclasses",
    namespaced=False,
    short_names=("sc",),
    default=_default_class,
    check=_check_class,
    returns_deleted=True,
)

STORAGE: tuple[Resource, ...] = (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    builtin(
        group=_GROUP,
        version="v1",
        kind="CSINode",
        plural="csinodes",
        namespaced=False,
        check=_check_csi_node,
        returns_deleted=True,
    ),
    builtin(
        group=_GROUP,
        version="v1",
        kind="CSIDriver",
        plural="csidrivers",
        namespaced=False,
        default=_default_driver,
        check=_check_driver,
        returns_deleted=True,
    ),
    builtin(
        group=_GROUP,
        version="v1",
        kind="CSIStorageCapacity",
        plural="csistoragecapacities",
        namespaced=True,
        check=_check_capacity,
    ),
    builtin(
        group=_GROUP,
        version="v1",
        kind="VolumeAttachment",
        plural="volumeattachments",
        namespaced=False,
        check=_check_attachment,
        status=True,
        first_status={"attached": False},
        returns_deleted=True,
    ),
    builtin(
        group=_GROUP,
        version="v1",
        kind="VolumeAttributesClass",
        plural="volumeattributesclasses",
        namespaced=False,
        short_names=("vac",),
        check=_check_attributes_class,
        returns_deleted=True,
    ),
)
