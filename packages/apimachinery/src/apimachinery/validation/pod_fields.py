"""Checks references of a template's environment and volumes to the pod itself: its fields and resources."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from apimachinery.wire import Wire

from . import names
from .field_problems import formatted, invalid, required, unsupported

_EVERYWHERE: Final = ("metadata.name", "metadata.namespace", "metadata.uid")
_IN_ENVIRONMENT: Final = (
    *_EVERYWHERE,
    *("spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs"),
    *("status.podIP", "status.podIPs"),
)
_IN_VOLUMES: Final = ("metadata.annotations", "metadata.labels", *_EVERYWHERE)
_AMOUNTS: Final = tuple(
    f"{kind}.{name}" for kind in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_HUGE: Final = ("requests.hugepages-", "limits.hugepages-")
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


class FieldRef(Wire, frozen=True):
    field_path: str = ""


class ResourceFieldRef(Wire, frozen=True):
    resource: str = ""
    container_name: str = ""


def field_problems(ref: FieldRef, at: str, *, in_volume: bool = False) -> Iterator[str]:
    path, allowed = ref.field_path, _IN_VOLUMES if in_volume else _IN_ENVIRONMENT
    if not path:
        yield required(f"{at}.fieldPath")
    elif keyed := _KEYED.fullmatch(path):
        # The keys of annotations are compared without case.
        key = keyed[2].lower() if keyed[1] == "annotations" else keyed[2]
        yield from formatted(at, key, names.qualified)
    elif not path.startswith(("metadata.", "spec.", "status.")):
        detail = f"error converting fieldPath: field label not supported: {path}"
        yield invalid(f"{at}.fieldPath", path, detail)
    elif path not in allowed:
        yield unsupported(f"{at}.fieldPath", path, allowed)


def resource_field_problems(ref: ResourceFieldRef, at: str, *, in_volume: bool = False) -> Iterator[str]:
    if in_volume and not ref.container_name:
        yield required(f"{at}.containerName")
    elif not ref.resource:
        yield required(f"{at}.resource")
    elif ref.resource not in _AMOUNTS and not ref.resource.startswith(_HUGE):
        yield unsupported(f"{at}.resource", ref.resource, _AMOUNTS)
