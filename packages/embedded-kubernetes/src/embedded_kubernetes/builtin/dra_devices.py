"""Device classes and resource slices (KEP-4381)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..errors import Cause
from ..resource import Object
from . import names
from .causes import check_format, invalid, required, too_many
from .kind import Logic
from .selectors import check_node_selector

_MAX_DEVICES = 128
_MAX_ELABORATE_DEVICES = 64
_ATTRIBUTE_KINDS = ("bool", "int", "string", "version", "bools", "ints", "strings", "versions")
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
)


def date_taints(slice_: Object) -> None:
    """Set `timeAdded` of taints that lack it to the slice's creation time."""
    for device in (slice_.get("spec") or {}).get("devices") or ():
        for taint in device.get("taints") or ():
            if not taint.get("timeAdded"):
                taint["timeAdded"] = slice_["metadata"].get("creationTimestamp")


def check_slice(slice_: Object, old: Object | None) -> Iterator[Cause]:
    spec = slice_.get("spec") or {}
    yield from _check_slice_nodes(spec)
    devices = spec.get("devices") or []
    if devices and spec.get("sharedCounters"):
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    elaborate = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    most = _MAX_ELABORATE_DEVICES if elaborate else _MAX_DEVICES
    if len(devices) > most:
        yield too_many("spec.devices", len(devices), most)
    for index, device in enumerate(devices):
        at = f"spec.devices[{index}]"
        yield from _check_device(device, at)
        yield from _check_device_nodes(device, at, on=bool(spec.get("perDeviceNodeSelection")))


def _check_slice_nodes(spec: dict[str, Any]) -> Iterator[Cause]:
    given = [
        field
        for field in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
        if spec.get(field) not in (None, "", False)
    ]
    detail = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    if not given:
        yield required("spec", detail)
    elif len(given) > 1:
        listed = ", ".join(f"`{field}`" for field in given)
        yield invalid("spec", f"{{{listed}}}", f"{detail}, but multiple fields are set")
    elif "nodeName" in given:
        yield from check_format("spec.nodeName", spec["nodeName"], names.subdomain)
    elif "nodeSelector" in given:
        yield from check_node_selector(spec["nodeSelector"], "spec.nodeSelector")
        terms = spec["nodeSelector"].get("nodeSelectorTerms") or []
        if len(terms) > 1:
            yield invalid("spec.nodeSelector.nodeSelectorTerms", terms, "must have exactly one node selector term")


def _check_device(device: dict[str, Any], at: str) -> Iterator[Cause]:
    for key, attribute in (device.get("attributes") or {}).items():
        here = f"{at}.attributes[{key}]"
        yield from _check_device_key(key, here)
        kinds = [kind for kind in _ATTRIBUTE_KINDS if attribute.get(kind) is not None]
        if len(kinds) != 1:
            yield invalid(here, attribute if kinds else "", "exactly one value must be specified")
        if (version := attribute.get("version")) is not None and not _SEMVER.fullmatch(version):
            detail = "must be a string compatible with semver.org spec 2.0.0"
            yield invalid(f"{here}.version", version, detail)
        for kind in ("string", "version"):
            if len(attribute.get(kind) or "") > 64:
                yield Cause("FieldValueTooLong", f"{here}.{kind}", "Too long: may not be more than 64 bytes")
    for key in device.get("capacity") or {}:
        yield from _check_device_key(key, f"{at}.capacity[{key}]")


def _check_device_nodes(device: dict[str, Any], at: str, *, on: bool) -> Iterator[Cause]:
    """Check a device's node selection, which is allowed only with `perDeviceNodeSelection`."""
    given = [field for field in ("nodeName", "nodeSelector", "allNodes") if device.get(field) is not None]
    if not on:
        detail = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true "
            "in the ResourceSlice spec"
        )
        if given:
            yield invalid(at, None, detail)
        return
    if len(given) == 1:
        return
    detail = (
        "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set "
        "to true in the ResourceSlice spec"
    )
    if given:
        yield invalid(at, ", ".join(given), detail)
    else:
        yield required(at, detail)


def _check_device_key(key: str, path: str) -> Iterator[Cause]:
    domain, slash, identifier = key.rpartition("/")
    if not identifier:
        yield required(path, "the name must not be empty")
    else:
        yield from check_format(path, identifier, names.c_identifier)
    if slash:
        yield from check_format(path, domain, names.subdomain)


LOGIC = {("resource.k8s.io", "ResourceSlice"): Logic(check=check_slice, on_create=date_taints)}
