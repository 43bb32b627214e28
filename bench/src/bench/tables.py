"""Prints figures as Markdown, the output of every benchmark."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table: the first column is text, the others are figures."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def short(value: float) -> str:
    """Return the value with three digits, or all digits before the point if these are more."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(values: Sequence[float]) -> str:
    """Return `median (least to most)`; only the value if there is one."""
    if len(values) == 1:
        return short(values[0])
    return f"{short(statistics.median(values))} ({short(min(values))} to {short(max(values))})"
