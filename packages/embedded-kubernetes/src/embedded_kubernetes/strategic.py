"""Strategic merge patch: a merge patch that merges lists by their merge keys.

The semantics are those of apimachinery's `strategicpatch`, including the order of items: patched items that are new
to a list come before items that only the server has, unless `$setElementOrder` determines the order. Directives:
`$patch` (merge, replace, delete), `$retainKeys`, `$deleteFromPrimitiveList/F`, `$setElementOrder/F`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import schema_source as source
from .errors import PATCHES, ApiError, bad_request, unknown_format
from .resource import Object, Resource

_PATCH = "$patch"
_RETAIN_KEYS = "$retainKeys"
_DELETE = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"

#: Returns the identity of a list item: the value of its merge key, or a scalar itself.
Identity = Callable[[Any], Any]


def strategic_merge_patch(doc: Object, patch: object, resource: Resource) -> Object:
    """Return `doc` with `patch` merged into it by the merge keys of the built-in type.

    The patch is consumed; `doc` is not changed, and the result shares unpatched parts with it. Raises 415 for custom
    resources, 400 for a patch that is not an object or has a malformed directive, and, like kube-apiserver, 500 for
    an unknown directive and for a list item without its merge key.
    """
    if resource.custom:
        raise unknown_format(PATCHES)
    if not isinstance(patch, dict):
        raise bad_request("invalid JSON document")
    model = source.model_name(resource.group, resource.version, resource.kind)
    root = source.Type("struct", struct=model) if model else source.Type("map", item=source.Type(source.RAW))
    return _merge_map(doc, patch, root)


def _merge_map(original: Object, patch: Object, type_: source.Type) -> Object:
    directive = patch.pop(_PATCH, None)
    if directive == "replace":
        return {key: _without_directives(value) for key, value in patch.items() if value is not None}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise _plain(f"unknown patch type {directive} in {_PATCH}")
    original = original.copy()
    fields = _fields(type_)
    _retain_keys(original, patch)
    _set_element_orders(original, patch, fields, type_)
    for key, value in patch.items():
        deleting = key.startswith(_DELETE)
        name = key[len(_DELETE) :] if deleting else key
        if value is None:
            original.pop(name, None)
        elif name not in original:
            if not deleting:
                original[name] = _without_directives(value)
        elif deleting:
            original[name] = _delete_scalars(original[name], value)
        else:
            original[name] = _merge_value(original[name], value, _field(fields, type_, name))
    return original


def _merge_value(original: Any, patch: Any, field: source.Field) -> Any:
    if isinstance(original, dict) and isinstance(patch, dict):
        return _without_directives(patch) if field.replace else _merge_map(original, patch, field.type)
    if isinstance(original, list) and isinstance(patch, list):
        return _merge_list(original, patch, field.type)
    return _without_directives(patch)


def _merge_list(original: list[Any], patch: list[Any], type_: source.Type) -> list[Any]:
    key = type_.rule.patch_key
    if key is None:
        # Only a merged list has directives; in a replaced one they are removed, as in any new value.
        kept: list[Any] = _without_directives(patch)
        return kept
    if key == "":
        merged = list(dict.fromkeys(map(_scalar, [*original, *patch])))
        return _ordered(merged, patch, original, _scalar)

    identity = _identity(key)
    items: list[Any] = []
    replace = False
    for item in patch:
        if not isinstance(item, dict):
            raise _plain(f"an item of a list that merges by {key} is no object")
        directive = item.get(_PATCH)
        if directive is None:
            items.append(item)
        elif directive == "replace":
            replace = True
        elif directive == "delete":
            gone = identity(item)
            original = [one for one in original if identity(one) != gone]
        elif directive == "merge":
            raise _plain("merging lists cannot yet be specified in the patch")
        else:
            raise _plain(f"unknown patch type {directive} in {_PATCH}")
    if replace:
        return [_without_directives(item) for item in items]

    assert type_.item is not None
    merged = list(original)
    places = {identity(item): index for index, item in reversed(list(enumerate(merged)))}
    for item in items:
        name = identity(item)
        place = places.get(name)
        if place is None:
            places[name] = len(merged)
            merged.append(_without_directives(item))
        else:
            merged[place] = _merge_map(merged[place], item, type_.item)
    return _ordered(merged, items, original, identity)


def _plain(message: str) -> ApiError:
    """Return an error that kube-apiserver does not classify: 500 without reason."""
    return ApiError(500, "", message)


def _identity(key: str) -> Identity:
    def identity(item: Any) -> Any:
        value = item.get(key) if isinstance(item, dict) else None
        if value is None:
            raise _plain(f"map: {_shown(item)} does not contain declared merge key: {key}")
        return value

    return identity


def _scalar(item: Any) -> Any:
    if isinstance(item, dict | list):
        raise bad_request("invalid patch format of primitive list")
    return item


def _ordered(merged: list[Any], order: list[Any], server: list[Any], identity: Identity) -> list[Any]:
    """Return items of `order` in its order and the others in the server's, interleaved as strategicpatch does."""
    wanted = {identity(item): index for index, item in reversed(list(enumerate(order)))}
    known = {identity(item): index for index, item in reversed(list(enumerate(server)))}
    patched = sorted((item for item in merged if identity(item) in wanted), key=lambda item: wanted[identity(item)])
    others = [item for item in merged if identity(item) not in wanted]
    woven: list[Any] = []
    left = right = 0
    while left < len(others) and right < len(patched):
        other = known.get(identity(others[left]))
        mine = known.get(identity(patched[right]))
        if other is not None and mine is not None and other < mine:
            woven.append(others[left])
            left += 1
        else:
            woven.append(patched[right])
            right += 1
    return woven + others[left:] + patched[right:]


def _retain_keys(original: Object, patch: Object) -> None:
    keys = patch.pop(_RETAIN_KEYS, None)
    if keys is None:
        return
    if not isinstance(keys, list) or any(
        name not in keys for name, value in patch.items() if not name.startswith("$") and value is not None
    ):
        raise bad_request("invalid patch format of retainKeys")
    for name in [name for name in original if name not in keys]:
        del original[name]


def _set_element_orders(
    original: Object, patch: Object, fields: Mapping[str, source.Field] | None, type_: source.Type
) -> None:
    """Merge and order every list with a $setElementOrder directive; remove both from the patch."""
    for directive in [key for key in patch if key.startswith(_ORDER)]:
        order = patch.pop(directive)
        name = directive.removeprefix(_ORDER)
        if not isinstance(order, list):
            raise bad_request("invalid patch format of setElementOrder list")
        before = original.get(name)
        change = patch.get(name)
        if not isinstance(before, list) and not isinstance(change, list):
            continue
        list_type = _field(fields, type_, name).type
        identity = _identity(list_type.rule.patch_key) if list_type.rule.patch_key else _scalar
        server = before if isinstance(before, list) else []
        if isinstance(change, list):
            _refuse_unordered(change, order, identity)
            merged = _merge_list(list(server), change, list_type) if server else _without_directives(change)
            del patch[name]
        else:
            merged = server
        original[name] = _ordered(merged, order, server, identity)


def _refuse_unordered(change: list[Any], order: list[Any], identity: Identity) -> None:
    """Check that all patched items are in the order list, in the same relative order. Raises 400."""
    places = {identity(item): index for index, item in enumerate(order)}
    last = -1
    for item in change:
        if isinstance(item, dict) and _PATCH in item:
            continue
        place = places.get(identity(item))
        if place is None or place < last:
            raise bad_request("invalid patch format of setElementOrder list")
        last = place


def _delete_scalars(items: Any, gone: Any) -> Any:
    if not isinstance(items, list) or not isinstance(gone, list):
        raise bad_request("invalid patch format of primitive list")
    return [item for item in items if item not in gone]


def _without_directives(value: Any) -> Any:
    """Return a new value without directives, which would otherwise be stored."""
    if isinstance(value, dict):
        return {
            key: _without_directives(inner)
            for key, inner in value.items()
            if inner is not None and key not in (_PATCH, _RETAIN_KEYS) and not key.startswith((_DELETE, _ORDER))
        }
    if isinstance(value, list):
        return [
            _without_directives(item)
            for item in value
            if not (isinstance(item, dict) and item.get(_PATCH) in ("delete", "replace", "merge"))
        ]
    return value


_OPEN = source.Field("", source.Type(source.RAW))


def _fields(type_: source.Type) -> Mapping[str, source.Field] | None:
    struct = source.struct_of(type_)
    return None if struct is None else struct.fields


def _field(fields: Mapping[str, source.Field] | None, type_: source.Type, name: str) -> source.Field:
    """Return the field of a struct, or for a map the type of its values. Unknown fields merge as plain JSON."""
    if fields is not None:
        return fields.get(name, _OPEN)
    return source.Field(name, type_.item) if type_.item is not None else _OPEN


def _shown(item: Any) -> str:
    if not isinstance(item, dict):
        return str(item)
    return "map[" + " ".join(f"{key}:{value}" for key, value in sorted(item.items())) + "]"
