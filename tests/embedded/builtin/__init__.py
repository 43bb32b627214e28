"""Rules of the built-in kinds, beyond what the recording shows."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from embedded_kubernetes.builtin import BUILTIN
from embedded_kubernetes.resource import Resource

KINDS: dict[tuple[str, str], Resource] = {(resource.group, resource.kind): resource for resource in BUILTIN}
POD = KINDS["", "Pod"]


def complete(metadata: dict[str, Any], *, namespaced: bool = True) -> dict[str, Any]:
    """Metadata as it is once the server has filled it in."""
    filled = {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "name": "x", **metadata}
    if namespaced:
        filled.setdefault("namespace", "t")
    return filled


def created(resource: Resource, obj: dict[str, Any]) -> dict[str, Any]:
    """`obj` as it would be stored, unchecked."""
    new = deepcopy(obj)
    new["metadata"] = complete(new.get("metadata", {}), namespaced=resource.namespaced)
    resource.default(new)
    resource.prepare_create(new)
    return new


def refused(resource: Resource, obj: dict[str, Any]) -> list[tuple[str, str]]:
    """(reason without its prefix, field) of each cause for refusing a create."""
    return brief(resource.validate(created(resource, obj), None))


def brief(causes: list[Any]) -> list[tuple[str, str]]:
    return [(cause.reason.removeprefix("FieldValue"), cause.field) for cause in causes]


def pod(spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    given = {"containers": [{"name": "c", "image": "i"}], **(spec or {})}
    return {"metadata": metadata, "spec": given}


def updated(
    resource: Resource, old: dict[str, Any], new: dict[str, Any], subresource: str = ""
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """What an update would store, and what it is refused for."""
    new, before = deepcopy(new), deepcopy(old)
    resource.default(new)
    resource.prepare_update(new, before, subresource)
    judge = resource.validate_below.get(subresource, resource.validate)
    return new, brief(judge(new, before))
