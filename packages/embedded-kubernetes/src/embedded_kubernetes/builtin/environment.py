"""Validation of a container's environment, volume mounts and block devices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..errors import Cause
from . import names
from .causes import check_descending, check_format, check_one_of, forbidden, invalid, not_found, required, unsupported
from .rules import RULES, check_part

_ENV_FIELDS = frozenset(
    {
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    }
)
_SUBSCRIPT = re.compile(r"(metadata\.(?:labels|annotations))\['([^']*)'\]")
_ENV_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_RESOURCE_FIELDS = tuple(
    f"{kind}.{name}" for kind in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)


def _check_sources(at: str, variable: Any, was: Any) -> list[Cause]:
    """Check that `valueFrom` has exactly one source and no `value`."""
    source = variable.get("valueFrom")
    if source is None:
        return []
    given = sum(source.get(kind) is not None for kind in _ENV_SOURCES)
    if not given:
        detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
    elif variable.get("value"):
        detail = "may not be specified when `value` is not empty"
    elif given > 1:
        detail = "may not have more than one field specified at a time"
    else:
        return []
    return [invalid(f"{at}.valueFrom", "", detail)]


def _check_field_ref(field: dict[str, Any], at: str) -> list[Cause]:
    """Check a reference to a field of the pod."""
    path = field.get("fieldPath", "")
    if not path:
        return [required(f"{at}.fieldPath")]
    if match := _SUBSCRIPT.fullmatch(path):
        key = match[2].lower() if match[1].endswith("annotations") else match[2]
        return check_format(at, key, names.qualified)
    if path in _ENV_FIELDS:
        return []
    if not path.startswith(("metadata.", "spec.", "status.")):
        detail = f"error converting fieldPath: field label not supported: {path}"
        return [invalid(f"{at}.fieldPath", path, detail)]
    return [unsupported(f"{at}.fieldPath", path, sorted(_ENV_FIELDS))]


def _check_resource_field_ref(field: dict[str, Any], at: str) -> list[Cause]:
    """Check a reference to a container's request or limit."""
    name = field.get("resource", "")
    if not name:
        return [required(f"{at}.resource")]
    if name not in _RESOURCE_FIELDS and not name.startswith(("requests.hugepages-", "limits.hugepages-")):
        return [unsupported(f"{at}.resource", name, _RESOURCE_FIELDS)]
    return []


RULES |= {
    "one source": _check_sources,
    "field of pod": lambda at, field, was: _check_field_ref(field, at),
    "amount of container": lambda at, field, was: _check_resource_field_ref(field, at),
}


def check_env_from(sources: list[dict[str, Any]], path: str) -> Iterator[Cause]:
    for index, source in enumerate(sources):
        at = f"{path}[{index}]"
        yield from check_part("envFrom", source, at)
        given = sum(source.get(kind) is not None for kind in ("configMapRef", "secretRef"))
        if not given:
            yield invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif given > 1:
            yield invalid(path, "", "may not have more than one field specified at a time")


def check_mounts(
    mounts: list[dict[str, Any]], path: str, container: dict[str, Any], volumes: dict[str, dict[str, Any]]
) -> Iterator[Cause]:
    seen: set[str] = set()
    devices = {device.get("name"): device.get("devicePath") for device in container.get("volumeDevices") or ()}
    for index, mount in enumerate(mounts):
        at = f"{path}[{index}]"
        name, where = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            yield required(f"{at}.name")
        if name not in volumes:
            yield not_found(f"{at}.name", name)
        if not where:
            yield required(f"{at}.mountPath")
        if where in seen:
            yield invalid(f"{at}.mountPath", where, "must be unique")
        seen.add(where)
        if name in devices:
            yield invalid(f"{at}.name", name, "must not already exist in volumeDevices")
        if where in devices.values():
            yield invalid(f"{at}.mountPath", where, "must not already exist as a path in volumeDevices")
        for field in ("subPath", "subPathExpr"):
            if below := mount.get(field):
                yield from check_descending(below, f"{path}.{field}")
        if mount.get("subPath") and mount.get("subPathExpr"):
            detail = "subPathExpr and subPath are mutually exclusive"
            yield invalid(f"{at}.subPathExpr", mount["subPathExpr"], detail)
        propagation = mount.get("mountPropagation")
        if propagation is not None:
            modes = ("Bidirectional", "HostToContainer", "None")
            yield from check_one_of(f"{path}.mountPropagation", propagation, modes)
            privileged = (container.get("securityContext") or {}).get("privileged")
            if propagation == "Bidirectional" and not privileged:
                detail = "Bidirectional mount propagation is available only to privileged containers"
                yield forbidden(f"{path}.mountPropagation", detail)


def check_devices(
    devices: list[dict[str, Any]], path: str, container: dict[str, Any], volumes: dict[str, dict[str, Any]]
) -> Iterator[Cause]:
    seen: set[str] = set()
    mounts = {mount.get("name") for mount in container.get("volumeMounts") or ()}
    for index, device in enumerate(devices):
        at = f"{path}[{index}]"
        name, where = device.get("name", ""), device.get("devicePath", "")
        if not name:
            yield required(f"{at}.name")
        if name in seen:
            yield invalid(f"{at}.name", name, "must be unique")
        seen.add(name)
        if name not in volumes:
            yield not_found(f"{at}.name", name)
        elif not volumes[name].keys() & {"persistentVolumeClaim", "ephemeral"}:
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            yield invalid(f"{at}.name", name, detail)
        if not where:
            yield required(f"{at}.devicePath")
        if ".." in where.split("/"):
            yield invalid(f"{at}.devicePath", where, "can not contain backsteps ('..')")
        if name in mounts:
            yield invalid(f"{at}.name", name, "must not already exist in volumeMounts")
