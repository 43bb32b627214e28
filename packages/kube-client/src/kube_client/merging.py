"""JSON merge patches (RFC 7386) of objects with maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def replacement(known: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return a merge patch after which a map, or an object with maps, is exactly `wanted`.

    A merge patch does not change unnamed keys, so keys that are `known` but not wanted are removed by name. Only maps
    with keys of other owners, such as annotations and labels, are patched without this.
    """
    before = known or {}
    patch: dict[str, Any] = dict.fromkeys(key for key in before if key not in wanted)
    for key, value in wanted.items():
        found = before.get(key)
        nested = isinstance(value, Mapping) and isinstance(found, Mapping)
        patch[key] = replacement(found, value) if nested else value
    return patch
