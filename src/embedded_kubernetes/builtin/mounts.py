"""Checks of a container's volume mounts and block devices against the pod's volumes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import Cause
from .causes import check_descending, check_one_of, forbidden, invalid, not_found, required


def check_mounts(
    mounts: list[dict[str, Any]], path: str, container: dict[str, Any], volumes: dict[str, dict[str, Any]]
) -> Iterator[Cause]:
    seen: set[str] = set()
    devices = {
        device.get("name"): device.get("devicePath") for device in container.get("volumeDevices") or ()
    }
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
