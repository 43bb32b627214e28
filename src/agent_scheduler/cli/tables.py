"""Formats tables in the style of kubectl."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from apimachinery.visible import visible

#: The limit of a cell in characters, since a column is as wide as its longest cell.
_WIDEST: Final = 256
#: The least width of a column that is cropped.
_LEAST: Final = 6
_GAP: Final = "   "


def _shown(cell: object) -> str:
    return visible(cropped("" if cell is None else str(cell), _WIDEST)) or "-"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, width: int | None = None) -> str:
    """Format a table whose lines end in a newline, without trailing spaces. Long cells are cropped.

    If it exceeds `width`, the widest columns are cropped, the first one less, since it has names.
    """
    lines = [tuple(head), *(tuple(_shown(cell) for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    excess = 0 if width is None else sum(widths) + len(_GAP) * (len(widths) - 1) - width
    while excess > 0 and max(widths) > _LEAST:
        widest = max(range(len(widths)), key=lambda column: widths[column] if column else widths[0] / 2)
        widths[widest] -= 1
        excess -= 1
    return "".join(
        _GAP.join(
            (cropped(cell, width) if column else shortened(cell, width)).ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        + "\n"
        for line in lines
    )


def shortened(text: str, width: int) -> str:
    """Return the text, or its beginning and end around an ellipsis: names of one owner differ at their ends."""
    end = (width - 1) // 2
    return text if len(text) <= width or end < 1 else f"{text[: width - 1 - end]}…{text[-end:]}"


def cropped(text: str, width: int) -> str:
    """Return the text, or its beginning with an ellipsis if it is longer than `width`."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


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
