"""Checks of a container's environment and of references to the pod's own fields."""

from __future__ import annotations

import re
from typing import Any

from ..errors import Cause
from . import names
from .causes import invalid, required, unsupported
from .rules import check_part

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
_RESOURCE_FIELDS = tuple(
    f"{kind}.{name}" for kind in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)


def check_env(variables: list[dict[str, Any]], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, variable in enumerate(variables):
        name = variable.get("name", "")
        if not name:
            causes.append(required(f"{path}[{index}].name"))
        elif problems := names.env_name(name):
            causes += [invalid(f"{path}[{index}].name", name, problem) for problem in problems]
        source = variable.get("valueFrom")
        if source is not None:
            causes += _check_env_source(source, f"{path}[{index}].valueFrom", bool(variable.get("value")))
    return causes


def _check_env_source(source: dict[str, Any], at: str, has_value: bool) -> list[Cause]:
    causes: list[Cause] = []
    kinds = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
    given = sum(source.get(kind) is not None for kind in kinds)
    if (field := source.get("fieldRef")) is not None:
        causes += check_field_ref(field, f"{at}.fieldRef", _ENV_FIELDS)
    if (field := source.get("resourceFieldRef")) is not None:
        causes += check_resource_field_ref(field, f"{at}.resourceFieldRef", in_volume=False)
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if (ref := source.get(kind)) is not None:
            name, key = ref.get("name", ""), ref.get("key", "")
            causes += [invalid(f"{at}.{kind}.name", name, text) for text in names.subdomain(name)]
            causes += (
                [invalid(f"{at}.{kind}.key", key, text) for text in names.config_key(key)]
                if key
                else [required(f"{at}.{kind}.key")]
            )
    if not given:
        detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        causes.append(invalid(at, "", detail))
    elif has_value:
        causes.append(invalid(at, "", "may not be specified when `value` is not empty"))
    elif given > 1:
        causes.append(invalid(at, "", "may not have more than one field specified at a time"))
    return causes


def check_field_ref(field: dict[str, Any], at: str, allowed: frozenset[str]) -> list[Cause]:
    """A reference to one of the pod's own fields, from the environment or a downward API volume."""
    path = field.get("fieldPath", "")
    if not path:
        return [required(f"{at}.fieldPath")]
    if match := _SUBSCRIPT.fullmatch(path):
        key = match[2].lower() if match[1].endswith("annotations") else match[2]
        return [invalid(at, key, problem) for problem in names.qualified(key)]
    if path in allowed:
        return []
    known = ("metadata.", "spec.", "status.")
    if not path.startswith(known):
        detail = f"error converting fieldPath: field label not supported: {path}"
        return [invalid(f"{at}.fieldPath", path, detail)]
    return [unsupported(f"{at}.fieldPath", path, sorted(allowed))]


def check_resource_field_ref(field: dict[str, Any], at: str, *, in_volume: bool) -> list[Cause]:
    """A reference to a container's request or limit."""
    name = field.get("resource", "")
    if in_volume and not field.get("containerName"):
        return [required(f"{at}.containerName")]
    if not name:
        return [required(f"{at}.resource")]
    if name not in _RESOURCE_FIELDS and not name.startswith(("requests.hugepages-", "limits.hugepages-")):
        return [unsupported(f"{at}.resource", name, _RESOURCE_FIELDS)]
    return []


def check_env_from(sources: list[dict[str, Any]], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, source in enumerate(sources):
        at = f"{path}[{index}]"
        causes += check_part("envFrom", source, at)
        given = sum(source.get(kind) is not None for kind in ("configMapRef", "secretRef"))
        if not given:
            causes.append(invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif given > 1:
            causes.append(invalid(path, "", "may not have more than one field specified at a time"))
    return causes
