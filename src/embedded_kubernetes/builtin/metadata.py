"""Metadata rules that all built-in kinds share, as apimachinery's `ValidateObjectMeta` has them.

On an update a real server checks metadata in its generic layer and again in the kind's own strategy, so a cause
is answered once for each time that it is found; `check_update` does the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

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
_CARRIED = ("uid", "deletionGracePeriodSeconds")
#: What an update cannot change, whatever it says.
_KEPT = ("creationTimestamp", "deletionTimestamp")

#: What a kind's own strategy checks of an update's metadata: that only what may change did ("change"), that it is
#: valid as if it were new ("whole"), both, or neither.
Rechecks = Literal["change", "whole", "both", "neither"]


def carry_over(obj: Object, old: Object) -> None:
    """Fill in what an update need not repeat. Generation is the server's alone: it is always the stored one."""
    metadata, stored = obj["metadata"], old["metadata"]
    for field in _CARRIED:
        if field in stored and not metadata.get(field):
            metadata[field] = stored[field]
    for field in _KEPT:
        if field in stored:
            metadata[field] = stored[field]
    restore(metadata, stored, ("generation",))


#: What users say of an object besides its name.
USERS = ("labels", "annotations", "finalizers", "ownerReferences")


def restore(obj: Object, old: Object, fields: tuple[str, ...]) -> None:
    """Give fields back what they were, or take them out if they were not there."""
    for field in fields:
        if field in old:
            obj[field] = old[field]
        else:
            obj.pop(field, None)


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
    for owner in owners:
        # No index in these paths; a real server has none.
        version = owner.get("apiVersion", "")
        if not version.rpartition("/")[2]:
            causes.append(invalid(f"{path}.apiVersion", version, "version must not be empty"))
        causes += [
            invalid(f"{path}.{field}", "", "must not be empty")
            for field in ("kind", "name", "uid")
            if not owner.get(field)
        ]
        if version == "v1" and owner.get("kind") == "Event":
            causes.append(invalid(path, "v1, Kind=Event", "v1, Kind=Event is disallowed from being an owner"))
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
    for finalizer in finalizers:
        causes += [invalid(path, finalizer, problem) for problem in names.qualified(finalizer)]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        causes.append(invalid(path, finalizers, detail))
    return causes


def _check_legacy_finalizers(finalizers: list[str], path: str) -> list[Cause]:
    """Built-in kinds know the few finalizers without a domain; custom kinds take any."""
    detail = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        invalid(f"{path}[{index}]", finalizer, detail)
        for index, finalizer in enumerate(finalizers)
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS
    ]


def _check_labels_and_owners(metadata: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    if labels := metadata.get("labels"):
        causes += check_labels(labels, f"{path}.labels")
    if annotations := metadata.get("annotations"):
        causes += check_annotations(annotations, f"{path}.annotations")
    if owners := metadata.get("ownerReferences"):
        causes += _check_owners(owners, f"{path}.ownerReferences")
    return causes


def _check_common(metadata: dict[str, Any], path: str, *, custom: bool) -> list[Cause]:
    causes = _check_labels_and_owners(metadata, path)
    if finalizers := metadata.get("finalizers"):
        causes += _check_finalizers(finalizers, f"{path}.finalizers")
        if not custom:
            causes += _check_legacy_finalizers(finalizers, f"{path}.finalizers")
    return causes


def check(
    metadata: dict[str, Any],
    path: str = "metadata",
    *,
    namespaced: bool = True,
    name_rule: Callable[[str], names.Problems] = names.subdomain,
    custom: bool = False,
) -> list[Cause]:
    """Metadata of a new object, name included."""
    name = metadata.get("name") or ""
    causes: list[Cause] = []
    if base := metadata.get("generateName"):
        causes += [invalid(f"{path}.generateName", base, text) for text in name_rule(_as_prefix(base))]
    if name:
        causes += [invalid(f"{path}.name", name, problem) for problem in name_rule(name)]
    else:
        causes.append(required(f"{path}.name", "name or generateName is required"))
    namespace = metadata.get("namespace")
    if namespaced:
        if not namespace:
            causes.append(required(f"{path}.namespace"))
    elif namespace:
        causes.append(forbidden(f"{path}.namespace", "not allowed on this type"))
    if not _CHECKED.isdisjoint(metadata):
        causes += _check_common(metadata, path, custom=custom)
    return causes


def _as_prefix(base: str) -> str:
    """A generateName as the beginning of a name: what ends in a hyphen is judged as if more followed."""
    return base[:-1] + "a" if len(base) > 1 and base.endswith("-") else base


def check_update(
    metadata: dict[str, Any],
    old: dict[str, Any],
    path: str = "metadata",
    *,
    rechecks: Rechecks = "both",
    custom: bool = False,
) -> list[Cause]:
    """Metadata of a changed object against the stored one: the generic layer's causes, then the kind's own.

    What is as it was stored passed these rules when it was.
    """
    changed = _check_change(metadata, old, path)
    news = {
        field: metadata[field] for field in _CHECKED & metadata.keys() if metadata[field] != old.get(field)
    }
    if not news:
        return changed * 2 if rechecks in ("change", "both") else changed
    causes = _check_common(news, path, custom=True)
    changed += _check_labels_and_owners(news, path)
    causes += changed
    if rechecks in ("change", "both"):
        causes += changed
    if rechecks in ("whole", "both"):
        causes += _check_common(news, path, custom=custom)
    return causes


def _check_change(metadata: dict[str, Any], old: dict[str, Any], path: str) -> list[Cause]:
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
    return causes + [
        immutable(f"{path}.{field}", metadata.get(field))
        for field in _IMMUTABLE
        if metadata.get(field) != old.get(field)
    ]
