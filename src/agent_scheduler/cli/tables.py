"""Formats tables in the style of kubectl."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from apimachinery.visible import visible

#: The limit of a cell in characters, since a column is as wide as its longest cell.
_WIDEST: Final = 256


def _shown(cell: object) -> str:
    text = "" if cell is None else str(cell)
    return visible(text if len(text) <= _WIDEST else f"{text[:_WIDEST]}...") or "-"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format a table whose lines end in a newline, without trailing spaces. Long cells are cut."""
    lines = [tuple(head), *(tuple(_shown(cell) for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "".join(
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n"
        for line in lines
    )


def age(stamp: str | None, now: datetime) -> str:
    """Format the time since an RFC 3339 time as `12s`, `5m`, `3h` or `40d`; empty for a missing or invalid time."""
    try:
        then = datetime.fromisoformat(stamp or "")
        seconds = max(0, int((now - then).total_seconds()))
    except (ValueError, TypeError):
        return ""
    for unit, size, until in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172800)):
        if seconds < until:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"
