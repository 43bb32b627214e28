"""Exact quantities of device capacities and counters, in billionths, with their original text.

An allocation result contains the amount that a claim consumes, which may be rounded up to a step. The amount is written
in apimachinery's canonical form, in the format of the step.
"""

from __future__ import annotations

from typing import NamedTuple

from apimachinery.quantity import BINARY, DECIMAL, UNIT, parse
from apimachinery.wire import Quantity

_DECIMAL = sorted(((power, suffix) for suffix, power in DECIMAL.items()), reverse=True)
_BINARY = sorted(((power, suffix) for suffix, power in BINARY.items()), reverse=True)


class ParsedAmount(NamedTuple):
    nano: int
    text: str


def amount(quantity: Quantity) -> ParsedAmount:
    """Parse a quantity. Raises `QuantityError`."""
    text = quantity if isinstance(quantity, str) else repr(quantity)
    return ParsedAmount(parse(text).nano, text)


def units(nano: int) -> int:
    """Return whole units, rounded away from zero (`Quantity.Value`)."""
    return -(-nano // UNIT) if nano >= 0 else nano // UNIT


def written_like(nano: int, model: ParsedAmount) -> ParsedAmount:
    """Return an amount in the format of `model`."""
    return ParsedAmount(nano, _text(nano, parse(model.text).format))


def _text(nano: int, form: str) -> str:
    if nano == 0:
        return "0"
    if form == "BinarySI" and nano % UNIT == 0:
        whole = nano // UNIT
        for power, suffix in _BINARY:
            if whole % (1 << power) == 0:
                return f"{whole >> power}{suffix}"
        return str(whole)
    for power, suffix in _DECIMAL:
        if nano % 10 ** (power + 9) == 0:
            digits = nano // 10 ** (power + 9)
            if form == "DecimalExponent":
                return f"{digits}e{power}" if power else str(digits)
            return f"{digits}{suffix}"
    raise AssertionError("every amount is a whole number of billionths")
