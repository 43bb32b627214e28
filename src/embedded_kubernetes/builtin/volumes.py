"""Checks of a pod's volumes: a name each, exactly one source, and what the common sources need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent_scheduler.objects.quantity import milli_value

from ..errors import Cause
from . import names
from .causes import check_one_of, duplicate, forbidden, invalid, required, unsupported
from .metadata import check_annotations, check_labels
from .selectors import check_label_selector

_HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")


def check_descending(path: str, at: str) -> list[Cause]:
    """A relative path that stays below where it starts."""
    if path.startswith("/"):
        return [invalid(at, path, "must be a relative path")]
    return check_no_backsteps(path, at)


def check_no_backsteps(path: str, at: str) -> list[Cause]:
    return [invalid(at, path, "must not contain '..'")] if ".." in path.split("/") else []


def _check_mode(source: dict[str, Any], at: str) -> list[Cause]:
    causes: list[Cause] = []
    mode = source.get("defaultMode")
    if mode is not None and not 0 <= mode <= 0o777:
        detail = "must be a number between 0 and 0777 (octal), both inclusive"
        causes.append(invalid(f"{at}.defaultMode", mode, detail))
    return causes + _check_items(source.get("items"), f"{at}.items")


def _check_items(items: list[dict[str, Any]] | None, path: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, item in enumerate(items or ()):
        at = f"{path}[{index}]"
        if not item.get("key"):
            causes.append(required(f"{at}.key"))
        if not item.get("path"):
            causes.append(required(f"{at}.path"))
        else:
            causes += check_descending(item["path"], f"{at}.path")
        mode = item.get("mode")
        if mode is not None and not 0 <= mode <= 0o777:
            detail = "must be a number between 0 and 0777 (octal), both inclusive"
            causes.append(invalid(f"{at}.mode", mode, detail))
    return causes


def _check_empty_dir(source: dict[str, Any], at: str) -> list[Cause]:
    limit = source.get("sizeLimit")
    if limit is not None and milli_value(limit) < 0:
        return [forbidden(f"{at}.sizeLimit", "SizeLimit field must be a valid resource quantity")]
    return []


def check_host_path(source: dict[str, Any], at: str) -> list[Cause]:
    path = source.get("path", "")
    if not path:
        return [required(f"{at}.path")]
    causes = check_no_backsteps(path, f"{at}.path")
    kind = source.get("type")
    return causes if not kind else causes + check_one_of(f"{at}.type", kind, _HOST_PATH_TYPES)


def _check_config_map(source: dict[str, Any], at: str) -> list[Cause]:
    causes = [] if source.get("name") else [required(f"{at}.name")]
    return causes + _check_mode(source, at)


def _check_secret(source: dict[str, Any], at: str) -> list[Cause]:
    causes = [] if source.get("secretName") else [required(f"{at}.secretName")]
    return causes + _check_mode(source, at)


def _check_claim(source: dict[str, Any], at: str) -> list[Cause]:
    return [] if source.get("claimName") else [required(f"{at}.claimName")]


def check_nfs(source: dict[str, Any], at: str) -> list[Cause]:
    causes = [required(f"{at}.{field}") for field in ("server", "path") if not source.get(field)]
    if (path := source.get("path", "")) and not path.startswith("/"):
        causes.append(invalid(f"{at}.path", path, "must be an absolute path"))
    return causes


def _check_csi(source: dict[str, Any], at: str) -> list[Cause]:
    driver = source.get("driver", "")
    if not driver:
        return [required(f"{at}.driver")]
    return check_driver_name(driver, f"{at}.driver")


def check_driver_name(driver: str, at: str) -> list[Cause]:
    """The name of a CSI driver."""
    if len(driver) > 63:
        return [Cause("FieldValueTooLong", at, "Too long: may not be more than 63 bytes")]
    return [invalid(at, driver, problem) for problem in names.subdomain(driver.lower())]


def _check_downward(source: dict[str, Any], at: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, item in enumerate(source.get("items") or ()):
        here = f"{at}.items[{index}]"
        if not item.get("path"):
            causes.append(required(f"{here}.path"))
        else:
            causes += check_descending(item["path"], f"{here}.path")
        if item.get("fieldRef") is None and item.get("resourceFieldRef") is None:
            causes.append(required(here, "one of fieldRef and resourceFieldRef is required"))
    return causes


def _check_projected(source: dict[str, Any], at: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, part in enumerate(source.get("sources") or ()):
        here = f"{at}.sources[{index}]"
        if len(part) > 1:
            causes.append(forbidden(here, "may not specify more than 1 volume type"))
        if (token := part.get("serviceAccountToken")) is not None:
            seconds = token.get("expirationSeconds", 3600)
            if seconds < 600:
                detail = "may not specify a duration less than 10 minutes"
                causes.append(invalid(f"{here}.serviceAccountToken.expirationSeconds", seconds, detail))
            if not token.get("path"):
                causes.append(required(f"{here}.serviceAccountToken.path"))
        for kind in ("secret", "configMap"):
            if (ref := part.get(kind)) is not None:
                if not ref.get("name"):
                    causes.append(required(f"{here}.{kind}.name"))
                causes += _check_items(ref.get("items"), f"{here}.{kind}.items")
        if (downward := part.get("downwardAPI")) is not None:
            causes += _check_downward(downward, f"{here}.downwardAPI")
    return causes


def _check_ephemeral(source: dict[str, Any], at: str) -> list[Cause]:
    template = source.get("volumeClaimTemplate")
    if template is None:
        return [required(f"{at}.volumeClaimTemplate")]
    metadata = template.get("metadata") or {}
    causes = check_labels(metadata.get("labels") or {}, f"{at}.volumeClaimTemplate.metadata.labels")
    causes += check_annotations(
        metadata.get("annotations") or {}, f"{at}.volumeClaimTemplate.metadata.annotations"
    )
    return causes + check_claim_spec(template.get("spec") or {}, f"{at}.volumeClaimTemplate.spec")


def _check_image(source: dict[str, Any], at: str) -> list[Cause]:
    causes = [] if source.get("reference") else [required(f"{at}.reference")]
    policy = source.get("pullPolicy")
    return causes + check_one_of(f"{at}.pullPolicy", policy, ("Always", "IfNotPresent", "Never"))


_SOURCES: dict[str, Callable[[dict[str, Any], str], list[Cause]]] = {
    "emptyDir": _check_empty_dir,
    "hostPath": check_host_path,
    "configMap": _check_config_map,
    "secret": _check_secret,
    "persistentVolumeClaim": _check_claim,
    "nfs": check_nfs,
    "csi": _check_csi,
    "downwardAPI": _check_downward,
    "projected": _check_projected,
    "ephemeral": _check_ephemeral,
    "image": _check_image,
}


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
            elif check := _SOURCES.get(kind):
                causes += check(volume[kind], f"{at}.{kind}")
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
    causes = [required(f"{at}.{field}") for field in ("name", "kind") if not source.get(field)]
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
