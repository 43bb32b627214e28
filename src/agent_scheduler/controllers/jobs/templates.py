"""Memory of what was computed from templates, which the pods of a task share."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Final, TypeVar

T = TypeVar("T")

#: Results for longer templates are computed each time: users determine their size and number.
MOST_BYTES: Final = 8_192
_KEPT: Final = 1024


def remembered(compute: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """Keep the last results for short templates. Callers must not modify them."""
    kept = lru_cache(maxsize=_KEPT)(compute)

    @wraps(compute)
    def computed(template: bytes) -> T:
        return (kept if len(template) <= MOST_BYTES else compute)(template)

    return computed
