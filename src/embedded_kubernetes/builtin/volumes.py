"""Checks of a pod's volumes: a name each, exactly one source, and what the common sources need."""

from __future__ import annotations

from typing import Any

from agent_scheduler.objects.quantity import milli_value

from ..errors import Cause
from . import names
from .causes import check_one_of, duplicate, forbidden, invalid, required, unsupported
from .rules import check_part, has_rules
from .selectors import check_label_selector

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")


def check_volumes(volumes: list[dict[str, Any]], path: str) -> tuple[dict[str, dict[str, Any]], list[Cause]]:
    """The volumes by name, for mounts to refer to, and what is wrong with them."""
    causes: list[Cause] = []
    by_name: dict[str, dict[str, Any]] = {}
    for index, volume in enumerate(volumes):
        at, name = f"{path}[{index}]", volume.get("name", "")
        if not name:
            causes.append(required(f"{at}.name"))
        else:
            causes += [invalid(f"{at}.name", name, problem) for problem in names.label(name)]
        if name in by_name:
            causes.append(duplicate(f"{at}.name", name))
        by_name[name] = volume
        kinds = [kind for kind in volume if kind != "name" and volume[kind] is not None]
        if not kinds:
            causes.append(required(at, "must specify a volume type"))
        for place, kind in enumerate(kinds):
            if place:
                causes.append(forbidden(f"{at}.{kind}", "may not specify more than 1 volume type"))
            elif has_rules(kind):
                causes += check_part(kind, volume[kind], f"{at}.{kind}")
                if kind == "ephemeral" and (template := volume[kind].get("volumeClaimTemplate")):
                    causes += check_claim_spec(
                        template.get("spec") or {}, f"{at}.{kind}.volumeClaimTemplate.spec"
                    )
    return by_name, causes


def check_claim_spec(spec: dict[str, Any], path: str) -> list[Cause]:
    """The spec of a PersistentVolumeClaim, stand-alone or inside an ephemeral volume."""
    causes: list[Cause] = []
    modes = spec.get("accessModes") or []
    if not modes:
        causes.append(required(f"{path}.accessModes", "at least 1 access mode is required"))
    causes += check_label_selector(spec.get("selector"), f"{path}.selector")
    for mode in modes:
        if mode not in _ACCESS_MODES:
            causes.append(unsupported(f"{path}.accessModes", mode, _ACCESS_MODES))
    if "ReadWriteOncePod" in modes and any(
        mode != "ReadWriteOncePod" and mode in _ACCESS_MODES for mode in modes
    ):
        detail = "may not use ReadWriteOncePod with other access modes"
        causes.append(forbidden(f"{path}.accessModes", detail))
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        causes.append(required(f"{path}.resources[storage]"))
    elif milli_value(storage) <= 0:
        causes.append(invalid(f"{path}.resources[storage]", storage, "must be greater than zero"))
    if name := spec.get("storageClassName"):
        causes += [invalid(f"{path}.storageClassName", name, problem) for problem in names.subdomain(name)]
    mode = spec.get("volumeMode")
    if mode is not None and mode not in VOLUME_MODES:
        causes.append(unsupported(f"{path}.volumeMode", mode, VOLUME_MODES))
    for field in ("dataSource", "dataSourceRef"):
        if (source := spec.get(field)) is not None:
            causes += _check_data_source(source, f"{path}.{field}")
    if name := spec.get("volumeAttributesClassName"):
        at = f"{path}.volumeAttributesClassName"
        causes += [invalid(at, name, problem) for problem in names.subdomain(name)]
    return causes


def _check_data_source(source: dict[str, Any], at: str) -> list[Cause]:
    causes = check_part("dataSource", source, at)
    group, kind = source.get("apiGroup") or "", source.get("kind", "")
    if not group and kind != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        causes.append(invalid(at, kind, detail))
    if group:
        causes += [invalid(f"{at}.apiGroup", group, problem) for problem in names.subdomain(group)]
    return causes


def check_access_modes(modes: list[str], path: str) -> list[Cause]:
    """The access modes of a PersistentVolume."""
    if not modes:
        return [required(path)]
    causes = [cause for mode in modes for cause in check_one_of(path, mode, _ACCESS_MODES)]
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        causes.append(forbidden(path, "may not use ReadWriteOncePod with other access modes"))
    return causes
