"""Figures as Markdown, which is what every benchmark prints."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table: the first column is text, the others are figures."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def short(value: float) -> str:
    """Three digits, and all of those before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(values: Sequence[float]) -> str:
    """`median (least to most)`; the value alone if there is one."""
    if len(values) == 1:
        return short(values[0])
    return f"{short(statistics.median(values))} ({short(min(values))} to {short(max(values))})"
