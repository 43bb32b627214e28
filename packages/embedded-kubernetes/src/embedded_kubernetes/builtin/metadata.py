"""Validation of metadata for all built-in kinds, after apimachinery's `ValidateObjectMeta`.

On an update kube-apiserver checks metadata in its generic layer and again in the kind's strategy, and reports an
error for each. `check_update` does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from ..errors import Cause
from ..resource import Object
from . import names
from .causes import check_format, forbidden, immutable, invalid, required, too_long

_MAX_ANNOTATIONS = 256 * 1024
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
#: Immutable fields, in the order of kube-apiserver's comparison.
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
#: Fields with further rules.
_CHECKED = frozenset({"labels", "annotations", "ownerReferences", "finalizers"})
#: Fields that an update keeps if it omits them.
_CARRIED = ("uid", "deletionGracePeriodSeconds")
#: Fields that an update never changes.
_KEPT = ("creationTimestamp", "deletionTimestamp")

NameRule = Callable[[str], names.Problems]
#: The checks of an update's metadata in a kind's strategy: immutable fields ("change"), full validation ("whole"),
#: both, or neither.
Rechecks = Literal["change", "whole", "both", "neither"]


def carry_over(obj: Object, old: Object) -> None:
    """Copy fields that an update may omit. The generation is always the stored one."""
    metadata, stored = obj["metadata"], old["metadata"]
    for field in _CARRIED:
        if field in stored and not metadata.get(field):
            metadata[field] = stored[field]
    for field in _KEPT:
        if field in stored:
            metadata[field] = stored[field]
    restore(metadata, stored, ("generation",))


#: Metadata that belongs to users, besides the name.
USERS = ("labels", "annotations", "finalizers", "ownerReferences")


def restore(obj: Object, old: Object, fields: tuple[str, ...]) -> None:
    """Set the fields to their old values; remove those that did not exist."""
    for field in fields:
        if field in old:
            obj[field] = old[field]
        else:
            obj.pop(field, None)


def raise_generation(obj: Object) -> None:
    obj["metadata"]["generation"] = obj["metadata"].get("generation", 0) + 1


def check_labels(labels: dict[str, Any], path: str) -> Iterator[Cause]:
    for key, value in labels.items():
        if problems := names.qualified(key):
            yield from (invalid(path, key, problem) for problem in problems)
        if problems := names.label_value(value):
            yield from (invalid(path, value, problem) for problem in problems)


def check_annotations(annotations: dict[str, Any], path: str) -> Iterator[Cause]:
    total = 0
    for key, value in annotations.items():
        if problems := names.qualified(key.lower()):
            yield from (invalid(path, key, problem) for problem in problems)
        total += len(key) + len(value)
    # The limit is in bytes; only texts that may exceed it are encoded.
    if total * 4 > _MAX_ANNOTATIONS:
        total = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
        if total > _MAX_ANNOTATIONS:
            yield too_long(path, _MAX_ANNOTATIONS)


def _check_owners(owners: list[dict[str, Any]], path: str) -> Iterator[Cause]:
    controller = ""
    for owner in owners:
        # kube-apiserver's paths have no index here.
        version = owner.get("apiVersion", "")
        if not version.rpartition("/")[2]:
            yield invalid(f"{path}.apiVersion", version, "version must not be empty")
        yield from (
            invalid(f"{path}.{field}", "", "must not be empty")
            for field in ("kind", "name", "uid")
            if not owner.get(field)
        )
        if version == "v1" and owner.get("kind") == "Event":
            yield invalid(path, "v1, Kind=Event", "v1, Kind=Event is disallowed from being an owner")
        if owner.get("controller"):
            if controller:
                detail = (
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{controller} and {owner.get('name', '')}"
                )
                yield invalid(path, owners, detail)
            controller = controller or owner.get("name", "")


def _check_finalizers(finalizers: list[str], *, custom: bool) -> Iterator[Cause]:
    """Check finalizers. Built-in kinds accept only a few without a domain; custom kinds accept any."""
    path = "metadata.finalizers"
    for finalizer in finalizers:
        yield from check_format(path, finalizer, names.qualified)
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        yield invalid(path, finalizers, "finalizer orphan and foregroundDeletion cannot be both set")
    for index, finalizer in enumerate(() if custom else finalizers):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid(f"{path}[{index}]", finalizer, detail)


def _check_labels_and_owners(metadata: dict[str, Any]) -> Iterator[Cause]:
    if labels := metadata.get("labels"):
        yield from check_labels(labels, "metadata.labels")
    if annotations := metadata.get("annotations"):
        yield from check_annotations(annotations, "metadata.annotations")
    if owners := metadata.get("ownerReferences"):
        yield from _check_owners(owners, "metadata.ownerReferences")


def _check_common(metadata: dict[str, Any], *, custom: bool) -> Iterator[Cause]:
    yield from _check_labels_and_owners(metadata)
    if finalizers := metadata.get("finalizers"):
        yield from _check_finalizers(finalizers, custom=custom)


def check(
    metadata: dict[str, Any], *, namespaced: bool = True, name_rule: NameRule = names.subdomain, custom: bool = False
) -> Iterator[Cause]:
    """Check the metadata of a new object, including its name."""
    name = metadata.get("name") or ""
    if base := metadata.get("generateName"):
        yield from (invalid("metadata.generateName", base, text) for text in name_rule(_as_prefix(base)))
    if name:
        yield from check_format("metadata.name", name, name_rule)
    else:
        yield required("metadata.name", "name or generateName is required")
    namespace = metadata.get("namespace")
    if namespaced:
        if not namespace:
            yield required("metadata.namespace")
    elif namespace:
        yield forbidden("metadata.namespace", "not allowed on this type")
    if not _CHECKED.isdisjoint(metadata):
        yield from _check_common(metadata, custom=custom)


def _as_prefix(base: str) -> str:
    """Return a generateName in the form that name rules accept: a trailing hyphen does not count as the end."""
    return base[:-1] + "a" if len(base) > 1 and base.endswith("-") else base


def check_update(
    metadata: dict[str, Any], old: dict[str, Any], *, rechecks: Rechecks = "both", custom: bool = False
) -> Iterator[Cause]:
    """Check a changed object's metadata against the stored one: in the generic layer, then in the kind's strategy.

    Unchanged fields are not checked again.
    """
    changed = list(_check_change(metadata, old))
    news = {field: metadata[field] for field in _CHECKED & metadata.keys() if metadata[field] != old.get(field)}
    if not news and not changed:
        return
    yield from _check_common(news, custom=True)
    changed += _check_labels_and_owners(news)
    yield from changed
    if rechecks in ("change", "both"):
        yield from changed
    if rechecks in ("whole", "both"):
        yield from _check_common(news, custom=custom)


def _check_change(metadata: dict[str, Any], old: dict[str, Any]) -> Iterator[Cause]:
    if "deletionTimestamp" in old:
        before = old.get("finalizers") or ()
        added = [item for item in metadata.get("finalizers") or () if item not in before]
        if added:
            listed = ", ".join(f'"{item}"' for item in added)
            detail = (
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"[]string{{{listed}}}"
            )
            yield forbidden("metadata.finalizers", detail)
    yield from (
        immutable(f"metadata.{field}", metadata.get(field))
        for field in _IMMUTABLE
        if metadata.get(field) != old.get(field)
    )
