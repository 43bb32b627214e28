"""JSON merge patches (RFC 7386) of objects that hold maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def replacement(known: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What a merge patch has to say of a map, or of an object with maps in it, so that it says `wanted` and nothing
    else. A merge patch leaves alone what it does not name, so each key that is `known` and not wanted is taken out by
    its name. Only a map of which others own keys as well, as annotations and labels are, is patched without this."""
    before = known or {}
    patch: dict[str, Any] = dict.fromkeys(key for key in before if key not in wanted)
    for key, value in wanted.items():
        found = before.get(key)
        nested = isinstance(value, Mapping) and isinstance(found, Mapping)
        patch[key] = replacement(found, value) if nested else value
    return patch
