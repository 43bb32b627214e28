"""Validation of a pod's volumes: unique names, exactly one source, and the fields of common sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apimachinery.quantity import milli_value

from ..errors import Cause
from . import names
from .causes import (
    check_choice,
    check_format,
    check_name,
    check_one_of,
    duplicate,
    forbidden,
    invalid,
    required,
    unsupported,
)
from .rules import check_part, has_rules
from .selectors import check_label_selector

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")


def check_volumes(volumes: list[dict[str, Any]], path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        at, name = f"{path}[{index}]", volume.get("name", "")
        yield from check_name(f"{at}.name", name, names.label)
        if name in seen:
            yield duplicate(f"{at}.name", name)
        seen.add(name)
        kinds = [kind for kind in volume if kind != "name" and volume[kind] is not None]
        if not kinds:
            yield required(at, "must specify a volume type")
        for place, kind in enumerate(kinds):
            if place:
                yield forbidden(f"{at}.{kind}", "may not specify more than 1 volume type")
            elif has_rules(kind):
                yield from check_part(kind, volume[kind], f"{at}.{kind}")
                if kind == "ephemeral" and (template := volume[kind].get("volumeClaimTemplate")):
                    yield from check_claim_spec(template.get("spec") or {}, f"{at}.{kind}.volumeClaimTemplate.spec")


def check_claim_spec(spec: dict[str, Any], path: str) -> Iterator[Cause]:
    """Check the spec of a PersistentVolumeClaim, stand-alone or in an ephemeral volume."""
    modes = spec.get("accessModes") or []
    if not modes:
        yield required(f"{path}.accessModes", "at least 1 access mode is required")
    yield from check_label_selector(spec.get("selector"), f"{path}.selector")
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield unsupported(f"{path}.accessModes", mode, _ACCESS_MODES)
    if "ReadWriteOncePod" in modes and any(mode != "ReadWriteOncePod" and mode in _ACCESS_MODES for mode in modes):
        yield forbidden(f"{path}.accessModes", "may not use ReadWriteOncePod with other access modes")
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        yield required(f"{path}.resources[storage]")
    elif milli_value(storage) <= 0:
        yield invalid(f"{path}.resources[storage]", storage, "must be greater than zero")
    if name := spec.get("storageClassName"):
        yield from check_format(f"{path}.storageClassName", name, names.subdomain)
    yield from check_choice(f"{path}.volumeMode", spec.get("volumeMode"), VOLUME_MODES)
    for field in ("dataSource", "dataSourceRef"):
        if (source := spec.get(field)) is not None:
            yield from _check_data_source(source, f"{path}.{field}")
    if name := spec.get("volumeAttributesClassName"):
        yield from check_format(f"{path}.volumeAttributesClassName", name, names.subdomain)


def _check_data_source(source: dict[str, Any], at: str) -> Iterator[Cause]:
    yield from check_part("dataSource", source, at)
    group, kind = source.get("apiGroup") or "", source.get("kind", "")
    if not group and kind != "PersistentVolumeClaim":
        yield invalid(at, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
    if group:
        yield from check_format(f"{at}.apiGroup", group, names.subdomain)


def check_access_modes(modes: list[str]) -> Iterator[Cause]:
    """Check the access modes of a PersistentVolume."""
    path = "spec.accessModes"
    if not modes:
        yield required(path)
        return
    yield from (cause for mode in modes for cause in check_one_of(path, mode, _ACCESS_MODES))
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        yield forbidden(path, "may not use ReadWriteOncePod with other access modes")
