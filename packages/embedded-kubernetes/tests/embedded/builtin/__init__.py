"""Rules of the built-in kinds, beyond the recording."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from embedded_kubernetes.builtin import BUILTIN
from embedded_kubernetes.resource import Resource

#: Resources by kind; the newer of the two kinds of events also has its group in the name.
KINDS: dict[str, Resource] = {
    f"{resource.kind}{'.new' if resource.group == 'events.k8s.io' else ''}": resource for resource in BUILTIN
}
POD = KINDS["Pod"]


def complete(metadata: dict[str, Any], *, namespaced: bool = True) -> dict[str, Any]:
    """Return metadata as the server completes it."""
    filled = {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "name": "x", **metadata}
    if namespaced:
        filled.setdefault("namespace", "t")
    return filled


def created(resource: Resource, obj: dict[str, Any]) -> dict[str, Any]:
    """Return `obj` as it would be stored, unchecked."""
    new = deepcopy(obj)
    new["metadata"] = complete(new.get("metadata", {}), namespaced=resource.namespaced)
    resource.default(new)
    resource.prepare_create(new)
    return new


def refused(resource: Resource, obj: dict[str, Any]) -> str:
    """Return the causes for refusing a create, each with its reason and field; empty for none."""
    return brief(resource.validate(created(resource, obj), None))


def brief(causes: list[Any]) -> str:
    return "; ".join(f"{cause.reason.removeprefix('FieldValue')} {cause.field}" for cause in causes)


def places(causes: str) -> list[str]:
    return [cause.partition(" ")[2] for cause in causes.split("; ")]


def updated(
    resource: Resource, old: dict[str, Any], new: dict[str, Any], subresource: str = ""
) -> tuple[dict[str, Any], str]:
    """Return the object that an update would store, and the causes of its refusal."""
    new, before = deepcopy(new), deepcopy(old)
    resource.default(new)
    resource.prepare_update(new, before, subresource)
    judge = resource.validate_below.get(subresource, resource.validate)
    return new, brief(judge(new, before))
