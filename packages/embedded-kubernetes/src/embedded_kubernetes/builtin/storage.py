"""Storage kinds: claims, volumes, storage classes, CSI drivers, CSI nodes and volume attachments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from apimachinery.quantity import milli_value

from ..errors import Cause
from ..resource import Object
from . import names
from .causes import check_format, check_one_of, forbidden, immutable, invalid, required
from .defaults import default_part
from .kind import Logic
from .rules import check_part
from .selectors import check_node_selector
from .volumes import VOLUME_MODES, check_access_modes, check_claim_spec

#: Annotations: the beta form of a claim's class, and the mark of the default class.
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
#: Finalizers of claims and volumes while they are in use.
CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
#: Fields of a PersistentVolume's spec other than its source.
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
    spec = claim["spec"]
    # A data source in the claim's own namespace has two field names; both are set.
    source, ref = spec.get("dataSource"), spec.get("dataSourceRef")
    if source and not ref:
        spec["dataSourceRef"] = dict(source)
    elif ref and not source and not ref.get("namespace"):
        spec["dataSource"] = dict(ref)


def protect(finalizer: str, obj: Object) -> None:
    """Add the finalizer, as the StorageObjectInUseProtection admission plugin does."""
    finalizers = obj["metadata"].setdefault("finalizers", [])
    if finalizer not in finalizers:
        finalizers.append(finalizer)


def _check_claim(claim: Object, old: Object | None) -> Iterator[Cause]:
    spec = claim.get("spec") or {}
    yield from list(check_claim_spec(spec, "spec"))
    # On an update both the strategy and the update check validate the whole spec.
    if old is not None:
        yield from _check_claim_update(claim, old)


def _check_claim_update(claim: Object, old: Object) -> Iterator[Cause]:
    spec = claim.get("spec") or {}
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
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        yield forbidden("spec", detail)
    now, was = _requested(spec), _requested(before)
    held = ((old.get("status") or {}).get("capacity") or {}).get("storage", "0")
    if milli_value(now) < milli_value(was) and milli_value(now) <= milli_value(held):
        yield forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")
    if spec.get("volumeMode") != before.get("volumeMode"):
        yield immutable("volumeMode", spec.get("volumeMode"))


def _requested(spec: dict[str, Any]) -> str:
    amount: str = ((spec.get("resources") or {}).get("requests") or {}).get("storage", "0")
    return amount


def wants_default_class(claim: Object) -> bool:
    """Return whether a new claim has no class. An empty name means that it wants none."""
    annotations = claim["metadata"].get("annotations") or {}
    return claim["spec"].get("storageClassName") is None and _BETA_CLASS not in annotations


def use_default_class(claim: Object, classes: Iterable[Object]) -> None:
    """Set the default class as the DefaultStorageClass admission plugin does.

    The newest of several defaults is used, or the first by name if they are equally old. Without a default, the claim
    stays without class until one is created.
    """
    defaults = [
        found
        for found in classes
        if any((found["metadata"].get("annotations") or {}).get(key) == "true" for key in _DEFAULT_CLASS)
    ]
    if defaults:
        newest = max(found["metadata"]["creationTimestamp"] for found in defaults)
        claim["spec"]["storageClassName"] = min(
            found["metadata"]["name"] for found in defaults if found["metadata"]["creationTimestamp"] == newest
        )


def _default_volume(volume: Object) -> None:
    default_part("volumeSource", volume["spec"])


def _create_volume(volume: Object) -> None:
    created = volume["metadata"].get("creationTimestamp")
    volume["status"] = {"phase": "Pending", "lastPhaseTransitionTime": created}


def _update_volume_status(volume: Object, old: Object) -> None:
    status, before = volume.setdefault("status", {}), old.get("status") or {}
    if status.get("phase") == before.get("phase") and "lastPhaseTransitionTime" in before:
        status.setdefault("lastPhaseTransitionTime", before["lastPhaseTransitionTime"])


def _check_volume(volume: Object, old: Object | None) -> Iterator[Cause]:
    spec = volume.get("spec") or {}
    yield from list(_check_volume_spec(spec))
    # On an update both the strategy and the update check validate the whole spec.
    if old is not None:
        yield from _check_volume_update(spec, old.get("spec") or {})


def _check_volume_spec(spec: dict[str, Any]) -> Iterator[Cause]:
    yield from check_access_modes(spec.get("accessModes") or [])
    capacity = spec.get("capacity") or {}
    if not capacity:
        yield required("spec.capacity")
    elif "storage" not in capacity or len(capacity) > 1:
        yield Cause("FieldValueNotSupported", "spec.capacity", 'Unsupported value: supported values: "storage"')
    for name, amount in capacity.items():
        if milli_value(amount) <= 0:
            yield invalid(f"spec.capacity[{name}]", amount, "must be greater than zero")
    policy = spec.get("persistentVolumeReclaimPolicy")
    yield from check_one_of("spec.persistentVolumeReclaimPolicy", policy, ("Delete", "Recycle", "Retain"))
    if (affinity := spec.get("nodeAffinity")) is not None:
        if affinity.get("required") is None:
            yield required("spec.nodeAffinity.required", "must specify required node constraints")
        else:
            yield from check_node_selector(affinity["required"], "spec.nodeAffinity.required")
    sources = [key for key in spec if key not in _NOT_SOURCES and spec[key] is not None]
    if not sources:
        yield required("spec", "must specify a volume type")
    for place, kind in enumerate(sources):
        at = f"spec.{kind}"
        if place:
            yield forbidden(at, "may not specify more than 1 volume type")
        elif kind in ("hostPath", "nfs", "csi"):
            yield from check_part("persistentCSI" if kind == "csi" else kind, spec[kind], at)
        elif kind == "local":
            if not spec[kind].get("path"):
                yield required(f"{at}.path")
            if spec.get("nodeAffinity") is None:
                yield required("spec.nodeAffinity", "Local volume requires node affinity")
    if name := spec.get("storageClassName"):
        yield from check_format("spec.storageClassName", name, names.subdomain)
    mode = spec.get("volumeMode")
    if mode is not None and mode not in VOLUME_MODES:
        yield from check_one_of("spec.volumeMode", mode, VOLUME_MODES)


def _check_volume_update(spec: dict[str, Any], before: dict[str, Any]) -> Iterator[Cause]:
    now = {key: value for key, value in spec.items() if key not in _NOT_SOURCES}
    if now != {key: value for key, value in before.items() if key not in _NOT_SOURCES}:
        detail = "spec.persistentvolumesource is immutable after creation"
        yield forbidden("spec.persistentvolumesource", detail)
    if spec.get("volumeMode") != before.get("volumeMode"):
        yield immutable("volumeMode", spec.get("volumeMode"))
    if before.get("nodeAffinity") is not None and spec.get("nodeAffinity") != before["nodeAffinity"]:
        yield immutable("nodeAffinity", spec.get("nodeAffinity"))


LOGIC = {
    ("", "PersistentVolumeClaim"): Logic(default=_default_claim, check=_check_claim),
    ("", "PersistentVolume"): Logic(
        default=_default_volume, check=_check_volume, on_create=_create_volume, on_status=_update_volume_status
    ),
}
