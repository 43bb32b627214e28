"""Server-side apply and field ownership.

An apply states the whole intent of one manager (KEP-555). Fields that it sets become its own. Fields that it set
before and no longer sets are removed unless others own them. A field that another manager owns with another value is
a conflict unless the apply is forced. Every other write is recorded as an update, whose manager owns what it changed.
The algorithm is `merge.Updater` of structured-merge-diff; entries, identifiers and messages are those of
apimachinery's `managedfields`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from . import nesting, schema, typed
from . import schema_source as source
from .errors import ApiError, Cause
from .resource import Object, Resource
from .typed import EMPTY, FieldSet, Path, below, decode, encode, show, with_parents

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
#: The manager of fields that existed before ownership was recorded.
_BEFORE_FIRST_APPLY = "before-first-apply"
#: The manager of the oldest updates beyond the limit, and the limit.
_ANCIENT, _MAX_UPDATERS = "ancient-changes", 10

#: Fields without owner: the server sets them, or they identify the object.
_STRIPPED: FieldSet = frozenset(
    {("f:apiVersion",), ("f:kind",), ("f:metadata",)}
    | {
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    }
)


class _Manager(NamedTuple):
    """The owner of fields. The identity of an applier ignores the version; that of an updater includes it."""

    name: str
    operation: str
    api_version: str
    subresource: str

    def identity(self) -> tuple[str, ...]:
        return (self.name, self.operation, "" if self.operation == "Apply" else self.api_version, self.subresource)

    def __str__(self) -> str:
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == "Update" else text


class _Entry(NamedTuple):
    manager: _Manager
    time: str
    fields: FieldSet


Managed = dict[tuple[str, ...], _Entry]


def apply(
    live: Object | None,
    config: Object,
    *,
    manager: str,
    force: bool,
    resource: Resource,
    now: str,
    subresource: str = "",
) -> Object:
    """Apply a configuration; return the resulting object with its managedFields, equal to `live` if nothing changes.

    Arguments are not changed. Raises 409 with a FieldManagerConflict cause for each field that another manager owns
    with another value, and, as kube-apiserver, 500 for a configuration that does not match its type.
    """
    root = _root(resource)
    config = _typed(config, resource, root)
    me = _Manager(manager, "Apply", resource.api_version, subresource)
    managed = _read(live)
    if live is not None and not managed:
        own = _subset(frozenset(typed.leaves(live, root, maps=True)), "") - _STRIPPED
        before = _Manager(_BEFORE_FIRST_APPLY, "Update", resource.api_version, "")
        managed[before.identity()] = _Entry(before, now, own)
    current: Object = live if live is not None else {}
    wanted = frozenset(typed.leaves(config, root, maps=False))
    last = managed.get(me.identity(), _Entry(me, "", EMPTY)).fields

    merged = typed.merge(current, config, root)
    others = frozenset().union(*(entry.fields for key, entry in managed.items() if key != me.identity()))
    gone = with_parents(last) - with_parents(wanted) - with_parents(others)
    result: Object = typed.remove(merged, gone, root)

    changed, removed = _compare(current, result, root)
    conflicts = [
        (entry.manager, path)
        for key, entry in managed.items()
        if key != me.identity()
        for path in sorted(entry.fields & changed)
    ]
    if conflicts and not force:
        conflicts = _not_by_kubectl(conflicts, current, root, manager)
        if conflicts:
            raise _conflict(conflicts)
    _disown(managed, changed | removed, but=me)
    fields = _subset(wanted - _STRIPPED, subresource)
    kept = managed.get(me.identity())
    if kept is None or kept.fields != fields or changed or removed:
        managed[me.identity()] = _Entry(me, now, fields)
    if not fields:
        managed.pop(me.identity(), None)
    _refresh_last_applied(result, current, config, manager)
    return _written(result, managed)


def track(
    old: Object | None, new: Object, *, manager: str, resource: Resource, now: str, subresource: str = ""
) -> None:
    """Record in `new`, in place, that `manager` changed `old` to `new`; `old` is None for a create.

    The managed fields of `new` take precedence over those of `old`, so that a client can rewrite them.
    """
    root = _root(resource)
    managed = _read(new) or _read(old)
    me = _Manager(manager, "Update", resource.api_version, subresource)
    changed, removed = _compare(old or {}, new, root)
    changed = _subset(changed - _STRIPPED, subresource)
    _disown(managed, changed | removed, but=me)
    mine = managed.get(me.identity())
    fields = ((mine.fields if mine else EMPTY) - removed) | changed
    if fields and (mine is None or changed):
        managed[me.identity()] = _Entry(me, now, fields)
    elif mine is not None:
        managed[me.identity()] = mine._replace(fields=fields)
    if not fields:
        managed.pop(me.identity(), None)
    _cap(managed)
    written = _written(new, managed)
    new["metadata"] = written["metadata"]


def overlaid(live: Object, config: Object, kind: tuple[str, str, str], resource: Resource | None) -> Object:
    """Merge `config` into `live` by the type's topology, without ownership, for a policy's mutation.

    `kind` is group, version and kind; `resource` is None for a kind that is not stored. Raises ValueError for a
    configuration that does not match its type, or that sets an atomic field, because replacing it could drop values
    that the policy does not know.
    """
    group, version, name = kind
    model = source.model_name(group, version, name)
    root = source.Type("struct", struct=model) if model else source.Type(source.RAW)
    if resource is not None:
        root = _root(resource)
    if wrong := list(typed.misfits(config, root)):
        raise ValueError(f"failed to convert patch object to typed object: {_listed(wrong)}")
    if resource is not None and resource.custom:
        unknown = schema.check_applied(resource, config)
    else:
        unknown = schema.check_kind(group, version, name, config, exact=True)
    if unknown:
        why = f".{unknown[0].split(chr(34))[1]}: field not declared in schema"
        raise ValueError(f"failed to convert patch object to typed object: {why}")
    try:
        typed.check_items(config, root)
    except typed.DuplicateItemError as error:
        raise ValueError(f"failed to convert patch object to typed object: {error}") from None
    whole = list(typed.atomics(config, root))
    if whole:
        shown = ", ".join(whole)
        raise ValueError(f"invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {shown}")
    merged: Object = typed.merge(live, config, root)
    return merged


def _listed(errors: list[str]) -> str:
    """Return errors in the form of structured-merge-diff's ValidationErrors."""
    return errors[0] if len(errors) == 1 else "\n".join(["errors:", *(f"  {error}" for error in errors)])


def only_times_differ(new: Object, old: Object) -> bool:
    """Return whether a write would only change times in managedFields. Such a write is skipped."""
    entries, before = new["metadata"].get("managedFields"), old["metadata"].get("managedFields")
    if not entries or not before or len(entries) != len(before):
        return False
    timeless = [[{**entry, "time": ""} for entry in listed] for listed in (entries, before)]
    if timeless[0] != timeless[1]:
        return False
    return {**new, "metadata": {**new["metadata"], "managedFields": before}} == old


def _root(resource: Resource) -> source.Type:
    if resource.custom:
        root: source.Type = resource.schema.type
        return root
    model = source.model_name(resource.group, resource.version, resource.kind)
    return source.Type("struct", struct=model) if model else source.Type(source.RAW)


def _typed(config: Object, resource: Resource, root: source.Type) -> Object:
    """Return a copy of the configuration with canonical values; raise if it does not match its type."""
    copy: Object = nesting.loads(nesting.dumps(config))
    metadata = copy.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
        if metadata.get("creationTimestamp", ...) is None:
            del metadata["creationTimestamp"]
    try:
        wrong = list(typed.misfits(copy, root))
        unknown = schema.check_applied(resource, copy) if not wrong else []
        problem = f".{unknown[0].split(chr(34))[1]}: field not declared in schema" if unknown else ""
        if wrong:
            problem = _listed(wrong)
        elif not unknown:
            typed.check_items(copy, root)
    except typed.DuplicateItemError as error:
        problem = str(error)
    if problem:
        name = (config.get("metadata") or {}).get("name", "")
        namespace = (config.get("metadata") or {}).get("namespace", "")
        what = f"{namespace}/{name}; {resource.api_version}, Kind={resource.kind}"
        raise ApiError(500, "", f"failed to create typed patch object ({what}): {problem}")
    return copy


def _subset(fields: FieldSet, subresource: str) -> FieldSet:
    """Return the fields that a write through a subresource may own: status for `status`, all others otherwise."""
    status = below(fields, [("f:status",)])
    if subresource == "status":
        return status | below(fields, [("f:metadata",)])
    return fields if subresource else fields - status


def _compare(old: Object, new: Object, root: source.Type) -> tuple[FieldSet, FieldSet]:
    """Return the paths that `new` adds or changes, and those that it removes."""
    before, after = typed.leaves(old, root, maps=True), typed.leaves(new, root, maps=True)
    ignored = ("f:metadata", "f:managedFields")
    changed = frozenset(
        path for path, value in after.items() if (path not in before or before[path] != value) and path[:2] != ignored
    )
    return changed, frozenset(path for path in before.keys() - after.keys() if path[:2] != ignored)


def _disown(managed: Managed, paths: FieldSet, *, but: _Manager) -> None:
    """Remove changed or removed fields from all other managers, and managers that have no fields left."""
    for key, entry in list(managed.items()):
        if key == but.identity() or not (entry.fields & paths):
            continue
        fields = entry.fields - paths
        if fields:
            managed[key] = entry._replace(fields=fields)
        else:
            del managed[key]


def _not_by_kubectl(
    conflicts: list[tuple[_Manager, Path]], live: Object, root: source.Type, manager: str
) -> list[tuple[_Manager, Path]]:
    """Return the conflicts that remain when kubectl takes over fields from its client-side apply."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(_LAST_APPLIED)
    if manager != "kubectl" or not text:
        return conflicts
    try:
        before = nesting.loads(text)
    except orjson.JSONDecodeError:
        return conflicts
    allowed = typed.leaves(before, root, maps=True) if isinstance(before, dict) else {}
    return [conflict for conflict in conflicts if conflict[1] not in allowed]


def _refresh_last_applied(result: Object, live: Object, config: Object, manager: str) -> None:
    """Update kubectl's client-side annotation on its server-side apply."""
    annotations = (live.get("metadata") or {}).get("annotations") or {}
    if manager == "kubectl" and _LAST_APPLIED in annotations:
        metadata = dict(result["metadata"])
        said = nesting.dumps(config).decode() + "\n"
        metadata["annotations"] = {**(metadata.get("annotations") or {}), _LAST_APPLIED: said}
        result["metadata"] = metadata


def _conflict(conflicts: list[tuple[_Manager, Path]]) -> ApiError:
    causes = [Cause("FieldManagerConflict", show(path), f"conflict with {by}") for by, path in conflicts]
    if len(conflicts) == 1:
        message = f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}"
    else:
        lines: list[str] = []
        for name in sorted({str(manager) for manager, _ in conflicts}):
            lines.append(f"conflicts with {name}:")
            lines += [f"- {show(path)}" for manager, path in conflicts if str(manager) == name]
        message = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
    return ApiError(409, "Conflict", message, {"causes": [cause.as_object() for cause in causes]})


def _read(obj: Object | None) -> Managed:
    """Return the managers of an object. Entries of other types than FieldsV1 are ignored."""
    managed: Managed = {}
    for entry in ((obj or {}).get("metadata") or {}).get("managedFields") or ():
        if not isinstance(entry, dict) or entry.get("fieldsType", "FieldsV1") != "FieldsV1":
            continue
        manager = _Manager(
            entry.get("manager", ""),
            entry.get("operation", "Update"),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )
        fields = decode(entry.get("fieldsV1"))
        known = managed.get(manager.identity())
        if known is not None:
            fields |= known.fields
        managed[manager.identity()] = _Entry(manager, entry.get("time", ""), fields)
    return managed


def _cap(managed: Managed) -> None:
    """Merge the oldest updaters into one, to bound the size of managedFields."""
    updaters = sorted(
        (entry for entry in managed.values() if entry.manager.operation == "Update"), key=lambda entry: entry.time
    )
    for entry in updaters[: max(len(updaters) - _MAX_UPDATERS, 0)]:
        ancient = _Manager(_ANCIENT, "Update", entry.manager.api_version, "")
        known = managed.get(ancient.identity(), _Entry(ancient, entry.time, EMPTY))
        del managed[entry.manager.identity()]
        managed[ancient.identity()] = known._replace(fields=known.fields | entry.fields, time=entry.time)


def _written(obj: Object, managed: Managed) -> Object:
    """Return the object with its managers in kube-apiserver's order: appliers first, then by time and name."""
    entries = sorted(managed.values(), key=lambda entry: (entry.manager.operation, entry.time, entry.manager))
    metadata = {key: value for key, value in (obj.get("metadata") or {}).items() if key != "managedFields"}
    if entries:
        metadata["managedFields"] = [_entry(entry) for entry in entries]
    return {**obj, "metadata": metadata}


def _entry(entry: _Entry) -> Any:
    written: Object = {
        "manager": entry.manager.name,
        "operation": entry.manager.operation,
        "apiVersion": entry.manager.api_version,
    }
    if entry.time:
        written["time"] = entry.time
    written["fieldsType"] = "FieldsV1"
    written["fieldsV1"] = encode(entry.fields)
    if entry.manager.subresource:
        written["subresource"] = entry.manager.subresource
    return written
