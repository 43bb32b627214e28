"""Checks that damaged objects return to their earlier state."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any


def without(keys: Collection[str], body: Any) -> Any:
    """Return the body without these keys, at any depth."""
    if isinstance(body, dict):
        return {key: without(keys, each) for key, each in body.items() if key not in keys}
    return [without(keys, each) for each in body] if isinstance(body, list) else body


async def until_as(wanted: Any, picture: Callable[[], Awaitable[Any]], seconds: int) -> tuple[Any, list[str]]:
    """Wait up to `seconds` until the picture equals `wanted`; return it and the remaining differences."""
    found = None
    for _ in range(0, seconds, 5):
        await asyncio.sleep(5)
        found = await picture()
        if found == wanted:
            break
    return found, _differences(wanted, found)


def _differences(wanted: Any, found: Any, at: str = "") -> list[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        keys = sorted(wanted.keys() | found.keys())
        return [each for key in keys for each in _differences(wanted.get(key), found.get(key), f"{at}/{key}")]
    return [] if wanted == found else [f"{at[-90:]}: {wanted} is {found}"]
