"""CEL functions on lists, and the functions that `macros` uses in rewritten calls.

Names and semantics are those of k8s.io/apiserver/pkg/cel/library and of cel-go's `ext.Lists`. Invalid input
raises ValueError, which fails the expression.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apimachinery.celtypes import Function

from .macros import OWN

#: The longest list that `lists.range` returns.
_LONGEST = 10_000_000


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal in CEL, where, unlike in Python, true does not equal 1."""
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    said = f"cannot slice({start}, {end}), "
    if start < 0 or end < 0:
        raise ValueError(f"{said}negative indexes not supported")
    if start > end:
        raise ValueError(f"{said}start index must be less than or equal to end index")
    if len(items) < end:
        raise ValueError(f"{said}list is length {len(items)}")
    return items[start:end]


def _flattened(items: Sequence[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise ValueError("level must be non-negative")
    found: list[Any] = []
    for item in items:
        found += _flattened(item, depth - 1) if isinstance(item, list) and depth else [item]
    return found


def _distinct(items: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if not any(_same(item, each) for each in found):
            found.append(item)
    return found


def _sorted_by(pairs: list[list[Any]]) -> list[Any]:
    kinds = {type(key) for _, key in pairs}
    if kinds & {list, dict, type(None)}:
        raise ValueError("list elements must be comparable")
    if len(kinds) > 1:
        raise ValueError("list elements must have the same type")
    return [item for item, _ in sorted(pairs, key=lambda pair: pair[1])]


def _sorted(items: list[Any]) -> list[Any]:
    return _sorted_by([[item, item] for item in items])


def _range(size: int) -> list[int]:
    if size < 0:
        raise ValueError(f"lists.range: size must be non-negative, got {size}")
    if size > _LONGEST:
        raise ValueError(f"lists.range: size {size} exceeds maximum allowed ({_LONGEST})")
    return list(range(size))


def _index(items: list[Any], wanted: list[Any]) -> int:
    return next((place for place, item in enumerate(items) if _same(item, wanted[0])), -1)


def _last_index(items: list[Any], wanted: list[Any]) -> int:
    found = _index(items[::-1], wanted)
    return len(items) - 1 - found if found >= 0 else -1


def _index_in_text(text: str, wanted: list[Any]) -> int:
    part, start = _sought(text, wanted, 0)
    return text.find(part, start)


def _last_index_in_text(text: str, wanted: list[Any]) -> int:
    part, start = _sought(text, wanted, len(text))
    return text.rfind(part, 0, start + len(part))


def _sought(text: str, wanted: list[Any], start: int) -> tuple[str, int]:
    part, start = wanted[0], wanted[1] if len(wanted) > 1 else start
    if not isinstance(part, str) or not isinstance(start, int):
        raise ValueError("no such overload")
    if part and (start < 0 or start > len(text)):
        raise ValueError(f"index out of range: {start}")
    return part, start


def _pairs(items: list[Any]) -> list[Any]:
    return [[place, item] for place, item in enumerate(items)]


def _pairs_of_map(entries: Mapping[Any, Any]) -> list[Any]:
    return [[key, value] for key, value in entries.items()]


def _merged(maps: list[dict[Any, Any]]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for entries in maps:
        for key, value in entries.items():
            if key in found:
                raise ValueError(f"insert failed: key {key} already exists")
            found[key] = value
    return found


FUNCTIONS = (
    Function("slice", ("list", "int", "int"), "list", _slice),
    Function("flatten", ("list",), "list", _flattened),
    Function("flatten", ("list", "int"), "list", _flattened),
    Function("distinct", ("list",), "list", _distinct),
    Function("sort", ("list",), "list", _sorted),
    Function("lists.range", ("int",), "list", _range, is_method=False),
    Function(f"{OWN}reverse", ("list",), "list", lambda items: items[::-1]),
    Function(f"{OWN}indexOf", ("list", "list"), "int", _index),
    Function(f"{OWN}indexOf", ("string", "list"), "int", _index_in_text),
    Function(f"{OWN}lastIndexOf", ("list", "list"), "int", _last_index),
    Function(f"{OWN}lastIndexOf", ("string", "list"), "int", _last_index_in_text),
    Function(f"{OWN}pairs", ("list",), "list", _pairs),
    Function(f"{OWN}pairs", ("map",), "list", _pairs_of_map),
    Function(f"{OWN}list", ("list",), "list", lambda items: items, is_method=False),
    Function(f"{OWN}mapped", ("list",), "map", dict),
    Function(f"{OWN}merged", ("list",), "map", _merged),
    Function(f"{OWN}sortedBy", ("list",), "list", _sorted_by),
)
