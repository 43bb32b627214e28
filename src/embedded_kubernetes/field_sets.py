"""Sets of field paths, as `metadata.managedFields` records them.

A path is a tuple of elements in the notation of fieldsV1: `f:NAME` a field, `k:{...}` a list item by its keys,
`v:VALUE` a list item by its value. A set is a frozenset of paths. In fieldsV1, a path that is a member is `{}`,
or holds `.` where longer paths begin with it (structured-merge-diff's `fieldpath`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from .resource import Object

Path = tuple[str, ...]
FieldSet = frozenset[Path]

EMPTY: FieldSet = frozenset()


def decode(fields: Any) -> FieldSet:
    """The set that a fieldsV1 value stands for. What is no fieldsV1 gives the empty set."""
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
    """The fieldsV1 value of a set."""
    root: Object = {}
    for path in sorted(paths):
        node = root
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    _tidy(root)
    return root


def _tidy(node: Object) -> None:
    """A member that nothing lies below is `{}`, without its dot."""
    if len(node) == 1 and "." in node:
        del node["."]
        return
    for element, inner in node.items():
        if element != ".":
            _tidy(inner)


def with_parents(paths: Iterable[Path]) -> FieldSet:
    """The set and every path that leads to one of its members."""
    return frozenset(path[:length] for path in paths for length in range(1, len(path) + 1))


def below(paths: FieldSet, prefixes: Iterable[Path]) -> FieldSet:
    """The members that are, or lie below, one of `prefixes`."""
    wanted = frozenset(prefixes)
    return frozenset(
        path for path in paths if any(path[:length] in wanted for length in range(1, len(path) + 1))
    )


def key_element(item: Object, keys: tuple[str, ...], defaults: dict[str, object]) -> str | None:
    """`k:{...}` of an item of an associative list; None if it has none of the keys."""
    found = {key: item.get(key, defaults.get(key)) for key in sorted(keys)}
    found = {key: value for key, value in found.items() if value is not None}
    return f"k:{_compact(found)}" if found else None


def value_element(item: Any) -> str:
    return f"v:{_compact(item)}"


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def show(path: Path) -> str:
    """`.spec.containers[name="c"].image`, as conflicts name a field."""
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
