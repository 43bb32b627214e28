"""Formats amounts for tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apimachinery.quantity import QuantityError, resource_value, text_of

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


def of_quantities(resources: Mapping[str, Any] | None) -> str:
    """Format quantities of an object as `cpu=1500m,memory=768Mi`, in whatever unit they were written."""

    def text(name: str, amount: Any) -> str:
        try:
            return text_of(name, resource_value(name, amount))
        except QuantityError:
            return str(amount)

    return ",".join(f"{name}={text(name, amount)}" for name, amount in sorted((resources or {}).items()))


def percent(part: float, whole: float) -> str:
    """Format a share as a percentage; `-` if `whole` is zero."""
    return f"{100 * part / whole:.0f}%" if whole else "-"
