"""How a built-in kind is put together from its own rules and those that all kinds share.

`builtin` returns the `Resource` of a kind. Metadata, the carrying over of what an update may not touch, and the
generation are handled here; a kind adds its defaults, its checks and its first status.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from ..errors import Cause
from ..resource import ALL_VERBS, Object, Resource, Shape, Subresource
from . import metadata, names

Check = Callable[[Object, Object | None], list[Cause]]
StatusCheck = Callable[[Object, Object], list[Cause]]
Prepare = Callable[[Object, Object], None]


def _passes(obj: Object, old: Object | None) -> list[Cause]:
    return []


def builtin(
    *,
    group: str,
    version: str,
    kind: str,
    plural: str,
    namespaced: bool,
    singular: str = "",
    short_names: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    verbs: tuple[str, ...] = ALL_VERBS,
    name_rule: Callable[[str], names.Problems] = names.subdomain,
    rechecks: metadata.Rechecks = "both",
    default: Callable[[Object], None] | None = None,
    check: Check = _passes,
    on_create: Callable[[Object], None] | None = None,
    on_update: Prepare | None = None,
    generation: bool = False,
    counted: tuple[str, ...] = ("spec",),
    status: bool = False,
    first_status: dict[str, Any] | None = None,
    keep_first_status: bool = False,
    on_status: Prepare | None = None,
    check_status: StatusCheck | None = None,
    status_keeps_labels: bool = False,
    field_names: tuple[str, ...] = (),
    fields: Callable[[Object], dict[str, str]] | None = None,
    subresources: tuple[Subresource, ...] = (),
    shape: Shape | None = None,
    returns_deleted: bool = False,
    grace: Callable[[Object], int] | None = None,
) -> Resource:
    """A built-in kind.

    `check(obj, old)` are the kind's own rules, after those of metadata; `rechecks` says what they repeat of
    metadata on an update. With `generation`, a create starts at 1
    and a change of one of the `counted` top-level fields adds 1. `first_status` is the status of a new object
    whatever the client sent, unless `keep_first_status`. A status write keeps all but status and metadata of
    the stored object; with `status_keeps_labels` also labels, annotations and the like.
    """

    def prepare_create(obj: Object) -> None:
        if generation:
            obj["metadata"]["generation"] = 1
        else:
            obj["metadata"].pop("generation", None)
        if first_status is not None and not keep_first_status:
            obj["status"] = deepcopy(first_status)
        if on_create is not None:
            on_create(obj)

    def prepare_update(obj: Object, old: Object, subresource: str) -> None:
        metadata.carry_over(obj, old)
        if subresource == "status":
            _keep_all_but_status(obj, old, labels=status_keeps_labels)
            if on_status is not None:
                on_status(obj, old)
            return
        if status:
            if "status" in old:
                obj["status"] = old["status"]
            else:
                obj.pop("status", None)
        if on_update is not None:
            on_update(obj, old)
        if generation and any(obj.get(field) != old.get(field) for field in counted):
            metadata.raise_generation(obj)

    def validate(obj: Object, old: Object | None) -> list[Cause]:
        if old is None and rechecks == "neither":
            # Only the generic layer looks at the metadata of these, after their own rules have passed.
            return check(obj, None) or metadata.check(
                obj["metadata"], namespaced=namespaced, name_rule=names.path_segment, custom=True
            )
        if old is None:
            causes = metadata.check(obj["metadata"], namespaced=namespaced, name_rule=name_rule)
        else:
            causes = metadata.check_update(obj["metadata"], old["metadata"], rechecks=rechecks)
        causes += check(obj, old)
        return causes

    def validate_status(obj: Object, old: Object) -> list[Cause]:
        own: metadata.Rechecks = "neither" if rechecks == "neither" else "change"
        causes = metadata.check_update(obj["metadata"], old["metadata"], rechecks=own)
        if check_status is not None:
            causes += check_status(obj, old)
        return causes

    # Kinds without fields of their own take both names, the others only those that they have.
    in_namespace = namespaced or not field_names
    common_fields = ("metadata.name", "metadata.namespace") if in_namespace else ("metadata.name",)
    extra: dict[str, Any] = {"default": default} if default is not None else {}
    return Resource(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=singular or kind.lower(),
        namespaced=namespaced,
        list_kind=f"{kind}List",
        short_names=short_names,
        categories=categories,
        verbs=verbs,
        status=status,
        prepare_create=prepare_create,
        prepare_update=prepare_update,
        validate=validate,
        validate_below={"status": validate_status} if status else {},
        field_names=common_fields + field_names,
        fields=_with_names(fields, namespaced=in_namespace),
        subresources=subresources,
        shape=shape,
        returns_deleted=returns_deleted,
        grace=grace,
        **extra,
    )


#: What a write to the status subresource sets.
_WRITTEN = frozenset({"metadata", "status", "apiVersion", "kind"})


def _keep_all_but_status(obj: Object, old: Object, *, labels: bool) -> None:
    for key in obj.keys() - old.keys() - _WRITTEN:
        del obj[key]
    obj.update({key: value for key, value in old.items() if key not in _WRITTEN})
    if labels:
        changed, stored = obj["metadata"], old["metadata"]
        for key in ("labels", "annotations", "finalizers", "ownerReferences"):
            if key in stored:
                changed[key] = stored[key]
            else:
                changed.pop(key, None)


def _with_names(
    own: Callable[[Object], dict[str, str]] | None, *, namespaced: bool
) -> Callable[[Object], dict[str, str]]:
    def fields(obj: Object) -> dict[str, str]:
        found = {"metadata.name": obj["metadata"]["name"]}
        if namespaced:
            found["metadata.namespace"] = obj["metadata"].get("namespace", "")
        if own is not None:
            found |= own(obj)
        return found

    return fields
