"""Operations on objects by their types: set fields, merge and removal.

Server-side apply (KEP-555) owns, merges and removes fields by the type's topology: structs and maps by field unless
they are atomic, lists as a whole unless they are sets or maps by key. All functions are pure.

Fields are sets of paths, as in `metadata.managedFields`. A path is a tuple of elements in the notation of fieldsV1:
`f:NAME` is a field, `k:{...}` a list item by its keys, `v:VALUE` a list item by its value. In fieldsV1, a member path
is `{}`, or has the key `.` if there are longer paths (structured-merge-diff's `fieldpath`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from . import schema_source as source
from .resource import Object

Path = tuple[str, ...]
FieldSet = frozenset[Path]

EMPTY: FieldSet = frozenset()


def decode(fields: Any) -> FieldSet:
    """Return the set of a fieldsV1 value; empty if it is malformed."""
    found: set[Path] = set()

    def walk(node: Any, at: Path) -> None:
        if not isinstance(node, dict):
            return
        if at and (not node or "." in node):
            found.add(at)
        for element, inner in node.items():
            if element != ".":
                walk(inner, (*at, element))

    walk(fields, ())
    return frozenset(found)


def encode(paths: FieldSet) -> Object:
    """Return the fieldsV1 value of a set."""
    root: Object = {}
    for path in sorted(paths):
        node = root
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    _tidy(root)
    return root


def _tidy(node: Object) -> None:
    """Replace members without longer paths by `{}`, in place."""
    if len(node) == 1 and "." in node:
        del node["."]
        return
    for element, inner in node.items():
        if element != ".":
            _tidy(inner)


def with_parents(paths: Iterable[Path]) -> FieldSet:
    """Return the set with every prefix of its members."""
    return frozenset(path[:length] for path in paths for length in range(1, len(path) + 1))


def below(paths: FieldSet, prefixes: Iterable[Path]) -> FieldSet:
    """Return the members that equal or extend one of `prefixes`."""
    wanted = frozenset(prefixes)
    return frozenset(path for path in paths if any(path[:length] in wanted for length in range(1, len(path) + 1)))


def key_element(item: Object, keys: tuple[str, ...], defaults: dict[str, object]) -> str | None:
    """Return `k:{...}` of an item of an associative list; None if it has none of the keys."""
    found = {key: item.get(key, defaults.get(key)) for key in sorted(keys)}
    found = {key: value for key, value in found.items() if value is not None}
    return f"k:{_compact(found)}" if found else None


def value_element(item: Any) -> str:
    return f"v:{_compact(item)}"


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def show(path: Path) -> str:
    """Return a path as conflicts print it: `.spec.containers[name="c"].image`."""
    text = ""
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            keys = json.loads(rest)
            text += "[" + ",".join(f"{key}={_compact(value)}" for key, value in keys.items()) + "]"
        elif kind == "v":
            text += f"[={rest}]"
        else:
            text += f"[{rest}]"
    return text


#: The value of a path that is a member only as a container: a list item, or a map.
CONTAINER = object()


class DuplicateItemError(ValueError):
    """An associative list or set has a duplicate item, or an item without keys; the message has the path."""


def leaves(value: Any, type_: source.Type, *, maps: bool) -> dict[Path, Any]:
    """Return every path that `value` sets, with its value or `CONTAINER`.

    Scalars and atomic values are leaves, as are empty structs and maps. Items of associative lists are members, too.
    With `maps`, so are maps: an update owns a labels map that it adds, an apply does not.
    """
    found: dict[Path, Any] = {}
    _leaves(value, type_, (), found, maps)
    return found


def _leaves(value: Any, type_: source.Type, at: Path, found: dict[Path, Any], maps: bool) -> None:
    if isinstance(value, dict) and not _atomic_map(type_):
        struct = source.struct_of(type_)
        if at and (not value or (maps and type_.kind == "map")):
            found[at] = CONTAINER
        for name, inner in value.items():
            _leaves(inner, field_type(type_, struct, name), (*at, f"f:{name}"), found, maps)
    elif isinstance(value, list) and _granular(type_):
        assert type_.item is not None
        for element, item in elements(value, type_):
            found[(*at, element)] = CONTAINER
            if type_.rule.apply == "map":
                _leaves(item, type_.item, (*at, element), found, maps)
    else:
        found[at] = value


def field_type(type_: source.Type, struct: source.Struct | None, name: str) -> source.Type:
    """Return the type of a field of a struct or map. For an unknown field it is deduced from the JSON."""
    if struct is not None:
        field = struct.fields.get(name)
        return field.type if field is not None else _DEDUCED
    return type_.item if type_.kind == "map" and type_.item is not None else _DEDUCED


_DEDUCED = source.Type(source.RAW)


def _atomic_map(type_: source.Type) -> bool:
    return type_.atomic or type_.kind not in ("struct", "map", "schema", source.RAW)


def _granular(type_: source.Type) -> bool:
    return type_.kind == "list" and type_.rule.apply in ("map", "set") and not type_.atomic


def elements(items: list[Any], type_: source.Type) -> Iterator[tuple[str, Any]]:
    """Yield the items of a set or map with their path elements; items without keys are skipped."""
    name = _namer(type_)
    for item in items:
        element = name(item)
        if element is not None:
            yield element, item


def _namer(type_: source.Type) -> Callable[[Any], str | None]:
    rule = type_.rule
    if rule.apply == "set":
        return value_element
    defaults = dict(rule.defaults)
    return lambda item: key_element(item, rule.keys, defaults) if isinstance(item, dict) else None


def check_items(value: Any, type_: source.Type, at: str = "") -> None:
    """Check the items of associative lists. Raises `DuplicateItemError` for duplicates and items without keys."""
    if isinstance(value, dict) and not _atomic_map(type_):
        struct = source.struct_of(type_)
        for name, inner in value.items():
            check_items(inner, field_type(type_, struct, name), f"{at}.{name}")
    elif isinstance(value, list) and _granular(type_):
        assert type_.item is not None
        name_of = _namer(type_)
        seen: set[str] = set()
        for index, item in enumerate(value):
            element = name_of(item)
            if element is None:
                keys = " ".join(f'"{key}"' for key in type_.rule.keys)
                raise DuplicateItemError(
                    f"{at}: element {index}: associative list with keys has an element that omits all key fields "
                    f"[{keys}] (and doesn't have default values for any key fields)"
                )
            if element in seen:
                raise DuplicateItemError(f"{at}: duplicate entries for key {element.partition(':')[2]}")
            seen.add(element)
            check_items(item, type_.item, f"{at}[{element.partition(':')[2]}]")


def misfits(value: Any, type_: source.Type, at: str = "") -> Iterator[str]:
    """Yield errors for values of the wrong JSON type, in the wording of structured-merge-diff."""
    wanted = type_.kind
    if value is None or wanted == source.RAW:
        return
    if wanted in ("struct", "map", "schema"):
        if not isinstance(value, dict):
            yield f"{at}: expected map, got &{{{_go(value)}}}"
            return
        struct = source.struct_of(type_)
        # Values of CEL expressions have no order.
        for name, inner in sorted(value.items()):
            yield from misfits(inner, field_type(type_, struct, name), f"{at}.{name}")
    elif wanted == "list":
        if not isinstance(value, list):
            yield f"{at}: expected list, got &{{{_go(value)}}}"
            return
        name_of = _namer(type_) if _granular(type_) else None
        for index, item in enumerate(value):
            element = name_of(item) if name_of is not None else None
            where = show((element,)) if element is not None else f"[{index}]"
            yield from misfits(item, type_.item or _DEDUCED, f"{at}{where}")
    elif wanted == "string" and not isinstance(value, str):
        yield f"{at}: expected string, got &value.valueUnstructured{{Value:{_go(value, exact=True)}}}"
    elif wanted == "boolean" and not isinstance(value, bool):
        yield f"{at}: expected boolean, got &value.valueUnstructured{{Value:{_go(value, exact=True)}}}"
    elif wanted in ("integer", "number") and (isinstance(value, bool) or not isinstance(value, int | float)):
        yield f"{at}: expected numeric (int or float), got {_GO_KINDS[type(value)]}"


_GO_KINDS: dict[type, str] = {bool: "bool", str: "string", list: "[]interface {}", dict: "map[string]interface {}"}


def _go(value: Any, *, exact: bool = False) -> str:
    """Return a value in the format of Go's fmt; with `exact`, in Go's syntax."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _compact(value) if exact else value
    if isinstance(value, dict):
        inside = (f"{_go(name, exact=exact)}:{_go(held, exact=exact)}" for name, held in sorted(value.items()))
        return f"map[string]interface {{}}{{{', '.join(inside)}}}" if exact else f"map[{' '.join(inside)}]"
    if isinstance(value, list):
        items = [_go(item, exact=exact) for item in value]
        return f"[]interface {{}}{{{', '.join(items)}}}" if exact else f"[{' '.join(items)}]"
    return "<nil>" if value is None else str(value)


def atomics(value: Any, type_: source.Type, at: str = "") -> Iterator[str]:
    """Yield the paths at which `value` sets atomic lists, maps or structs."""
    if isinstance(value, dict):
        if at and _atomic_map(type_):
            yield at
            return
        struct = source.struct_of(type_)
        for name, inner in value.items():
            yield from atomics(inner, field_type(type_, struct, name), f"{at}.{name}")
    elif isinstance(value, list):
        if not _granular(type_):
            yield at
            return
        for index, item in enumerate(value):
            yield from atomics(item, type_.item, f"{at}[{index}]") if type_.item else ()


def merge(live: Any, config: Any, type_: source.Type) -> Any:
    """Merge `config` into `live`. Neither is changed, and the result may share parts with both."""
    if isinstance(live, dict) and isinstance(config, dict) and not _atomic_map(type_):
        struct = source.struct_of(type_)
        merged: Object = dict(live)
        for name, value in config.items():
            inner = field_type(type_, struct, name)
            merged[name] = merge(live[name], value, inner) if name in live else value
        return merged
    if isinstance(live, list) and isinstance(config, list) and _granular(type_):
        return _merge_items(live, config, type_)
    return config


def _merge_items(live: list[Any], config: list[Any], type_: source.Type) -> list[Any]:
    """Merge items in the order of config; items that only `live` has stay before the items that followed them."""
    assert type_.item is not None
    left, right = list(elements(live, type_)), list(elements(config, type_))
    old, wanted = dict(reversed(left)), {element for element, _ in right}
    shared = [element for element, _ in right if element in old]
    merged: list[Any] = []
    passed = 0
    for element, item in right:
        if element in old:
            # Items that only `live` has before this one stay before it.
            place = next(index for index, (name, _) in enumerate(left) if name == element)
            merged += [one for name, one in left[passed:place] if name not in wanted]
            passed = max(passed, place + 1)
            merged.append(merge(old[element], item, type_.item))
        else:
            if not shared:
                merged += [one for name, one in left[passed:] if name not in wanted]
                passed = len(left)
            merged.append(item)
    return merged + [one for name, one in left[passed:] if name not in wanted]


def remove(value: Any, paths: FieldSet, type_: source.Type) -> Any:
    """Return `value` without the fields and items in `paths`, and everything below them. `value` is not changed."""
    tree: Object = {}
    for path in paths:
        node = tree
        for element in path[:-1]:
            node = node.setdefault(element, {})
            if node is None:
                break
        else:
            node[path[-1]] = None
    return _remove(value, tree, type_)


def _remove(value: Any, tree: Object, type_: source.Type) -> Any:
    if isinstance(value, dict) and not _atomic_map(type_):
        struct = source.struct_of(type_)
        kept: Object = {}
        for name, inner in value.items():
            below = tree.get(f"f:{name}", _KEEP)
            if below is None:
                continue
            kept[name] = inner if below is _KEEP else _remove(inner, below, field_type(type_, struct, name))
        return kept
    if isinstance(value, list) and _granular(type_):
        assert type_.item is not None
        name_of = _namer(type_)
        items: list[Any] = []
        for item in value:
            below = tree.get(name_of(item) or "", _KEEP)
            if below is None:
                continue
            items.append(item if below is _KEEP else _remove(item, below, type_.item))
        return items
    return value


_KEEP: Any = object()
