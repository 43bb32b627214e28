"""Formats amounts for tables."""

from __future__ import annotations

from typing import Final

_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def of_bytes(amount: float) -> str:
    """Format bytes as `1.5Gi`, with about three significant digits."""
    unit = 0
    while abs(amount) >= 1024 and unit < len(_BINARY) - 1:
        amount /= 1024
        unit += 1
    return short(amount) + _BINARY[unit]


def short(number: float) -> str:
    """Format a number as `0.25`, `12.5` or `1234`."""
    digits = 2 if abs(number) < 10 else 1 if abs(number) < 100 else 0
    text = f"{number:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(part: float, whole: float) -> str:
    """Format a share as a percentage; `-` if `whole` is zero."""
    return f"{100 * part / whole:.0f}%" if whole else "-"
