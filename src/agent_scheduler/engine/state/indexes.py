"""Nested tables without empty inner tables."""

from __future__ import annotations

from collections.abc import Hashable, MutableMapping
from typing import Any


def drop_entry(index: MutableMapping[Any, Any], outer: Hashable, inner: Hashable) -> None:
    """Remove an entry, and the inner table if it becomes empty. A missing entry is ignored."""
    table = index.get(outer)
    if table is not None:
        table.pop(inner, None)
        if not table:
            del index[outer]
