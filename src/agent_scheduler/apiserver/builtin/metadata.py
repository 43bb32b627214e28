"""Metadata rules that all built-in kinds share, as apimachinery's `ValidateObjectMeta` has them.

On an update the generic layer and the kind's own strategy both check metadata in a real server, so each cause
is answered twice; `check_update` does the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import Cause
from ..resource import Object
from . import names
from .causes import forbidden, immutable, invalid, required, too_long

_MAX_ANNOTATIONS = 256 * 1024
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
#: What no write may change, in the order in which a real server compares it.
_IMMUTABLE = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
#: What has rules of its own.
_CHECKED = frozenset({"labels", "annotations", "ownerReferences", "finalizers"})
#: What an update that leaves it out keeps.
_CARRIED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def carry_over(obj: Object, old: Object) -> None:
    """Fill in what an update need not repeat. Generation is the server's alone: it is always the stored one."""
    metadata, stored = obj["metadata"], old["metadata"]
    for field in _CARRIED:
        if metadata.get(field) is None and field in stored:
            metadata[field] = stored[field]
    if "generation" in stored:
        metadata["generation"] = stored["generation"]
    else:
        metadata.pop("generation", None)


def raise_generation(obj: Object) -> None:
    obj["metadata"]["generation"] = obj["metadata"].get("generation", 0) + 1


def check_labels(labels: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for key, value in labels.items():
        if problems := names.qualified(key):
            causes += [invalid(path, key, problem) for problem in problems]
        if problems := names.label_value(value):
            causes += [invalid(path, value, problem) for problem in problems]
    return causes


def check_annotations(annotations: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    total = 0
    for key, value in annotations.items():
        if problems := names.qualified(key.lower()):
            causes += [invalid(path, key, problem) for problem in problems]
        total += len(key) + len(value)
    # The limit is in bytes; only texts that may exceed it are encoded to count them.
    if total * 4 > _MAX_ANNOTATIONS:
        total = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
        if total > _MAX_ANNOTATIONS:
            causes.append(too_long(path, _MAX_ANNOTATIONS))
    return causes


def _check_owners(owners: list[dict[str, Any]], path: str) -> list[Cause]:
    causes: list[Cause] = []
    controller = ""
    for index, owner in enumerate(owners):
        at = f"{path}[{index}]"
        version = owner.get("apiVersion", "")
        if not version.rpartition("/")[2]:
            causes.append(invalid(f"{at}.apiVersion", version, "version must not be empty"))
        causes += [
            invalid(f"{at}.{field}", "", "must not be empty")
            for field in ("kind", "name", "uid")
            if not owner.get(field)
        ]
        if version == "v1" and owner.get("kind") == "Event":
            causes.append(invalid(at, "v1, Kind=Event", "v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            if controller:
                detail = (
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{controller} and {owner.get('name', '')}"
                )
                causes.append(invalid(path, owners, detail))
            controller = controller or owner.get("name", "")
    return causes


def _check_finalizers(finalizers: list[str], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, finalizer in enumerate(finalizers):
        causes += [invalid(path, finalizer, problem) for problem in names.qualified(finalizer)]
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(invalid(f"{path}[{index}]", finalizer, detail))
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        causes.append(invalid(path, finalizers, detail))
    return causes


def _check_common(metadata: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    if labels := metadata.get("labels"):
        causes += check_labels(labels, f"{path}.labels")
    if annotations := metadata.get("annotations"):
        causes += check_annotations(annotations, f"{path}.annotations")
    if owners := metadata.get("ownerReferences"):
        causes += _check_owners(owners, f"{path}.ownerReferences")
    if finalizers := metadata.get("finalizers"):
        causes += _check_finalizers(finalizers, f"{path}.finalizers")
    return causes


def check(
    metadata: dict[str, Any],
    path: str = "metadata",
    *,
    namespaced: bool = True,
    name_rule: Callable[[str], names.Problems] = names.subdomain,
) -> list[Cause]:
    """Metadata of a new object, name included."""
    name = metadata.get("name") or ""
    causes = (
        [invalid(f"{path}.name", name, problem) for problem in name_rule(name)]
        if name
        else [required(f"{path}.name", "name or generateName is required")]
    )
    namespace = metadata.get("namespace")
    if namespaced:
        if not namespace:
            causes.append(required(f"{path}.namespace"))
    elif namespace:
        causes.append(forbidden(f"{path}.namespace", "not allowed on this type"))
    if not _CHECKED.isdisjoint(metadata):
        causes += _check_common(metadata, path)
    return causes


def check_update(metadata: dict[str, Any], old: dict[str, Any], path: str = "metadata") -> list[Cause]:
    """Metadata of a changed object against the stored one."""
    causes: list[Cause] = []
    if "deletionTimestamp" in old:
        before = old.get("finalizers") or ()
        added = [item for item in metadata.get("finalizers") or () if item not in before]
        if added:
            listed = ", ".join(f'"{item}"' for item in added)
            detail = (
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"[]string{{{listed}}}"
            )
            causes.append(forbidden(f"{path}.finalizers", detail))
    causes += [
        immutable(f"{path}.{field}", metadata.get(field))
        for field in _IMMUTABLE
        if metadata.get(field) != old.get(field)
    ]
    if not _CHECKED.isdisjoint(metadata):
        causes += _check_common(metadata, path)
    return causes * 2
