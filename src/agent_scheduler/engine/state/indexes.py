"""Tables of tables that keep no empty inner table."""

from __future__ import annotations

from collections.abc import Hashable, MutableMapping
from typing import Any


def drop_entry(index: MutableMapping[Any, Any], outer: Hashable, inner: Hashable) -> None:
    """Remove an entry, and its table with the last one. Without effect for one that is not there."""
    table = index.get(outer)
    if table is not None:
        table.pop(inner, None)
        if not table:
            del index[outer]
