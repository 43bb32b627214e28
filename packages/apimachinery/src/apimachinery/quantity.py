"""Kubernetes quantities as exact integers.

The ledger counts in int64: CPU in millicores, everything else in whole units. Fractions of a unit are rounded up, as
in apimachinery's `Quantity.Value` and `MilliValue`, so that a request is never underestimated.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal, NamedTuple

#: The largest amount in an int64 column. Larger quantities are clamped to it, as in `Quantity`.
MAX_INT64 = 2**63 - 1

#: One unit in nano units, the smallest that a quantity distinguishes.
UNIT = 10**9

#: Suffix -> exponent of 10 or 2.
DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

#: Python rejects much longer integers, since parsing them has quadratic cost.
_MAX_DIGITS = 1000
#: Above this power of ten the amount is the maximum or minimum, whatever its `_MAX_DIGITS` digits.
_MAX_POWER = _MAX_DIGITS + 100

# Possessive, so that the cost is linear: users may write a million digits.
_FORM = re.compile(r"([+-]?)([0-9]*+)(\.[0-9]*+)?([eEinumkKMGTP]*+[-+]?[0-9]*+)")
#: The digits of an int64, which is Go's type for an exponent.
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]{1,19})")


class QuantityError(ValueError):
    """A text is not a quantity. `part` is the invalid part: form, number or suffix."""

    def __init__(self, text: str, part: Literal["form", "number", "suffix"]) -> None:
        super().__init__(
            f"invalid quantity {text[:64]!r}: expected a number with an optional suffix "
            "(n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent)"
        )
        self.part = part


class Quantity(NamedTuple):
    """An amount in billionths of a unit, rounded away from zero, and its format (`resource.Format`)."""

    nano: int
    format: Literal["DecimalSI", "BinarySI", "DecimalExponent"]


def parse(text: str) -> Quantity:
    """Parse a quantity as `resource.ParseQuantity` does. Raises `QuantityError`."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise QuantityError(text, "form")
    sign, whole, fraction, suffix = match.groups()
    digits = whole + (fraction or "")[1:]
    if not digits:
        raise QuantityError(text, "number" if fraction else "form")
    if len(digits) > _MAX_DIGITS:
        raise QuantityError(text, "number")
    exponent = _EXPONENT.fullmatch(suffix)
    if suffix not in DECIMAL and suffix not in BINARY and exponent is None:
        raise QuantityError(text, "suffix")
    nano = _nano(int(digits), len(digits) - len(whole), suffix, int(exponent[1]) if exponent else None)
    return Quantity(
        -nano if sign == "-" else nano,
        "BinarySI" if suffix in BINARY else "DecimalExponent" if exponent else "DecimalSI",
    )


def _nano(digits: int, decimals: int, suffix: str, exponent: int | None) -> int:
    power = exponent if exponent is not None else DECIMAL.get(suffix, 0)
    power = max(min(power, _MAX_POWER), -_MAX_POWER) + 9 - decimals
    if suffix in BINARY:
        digits <<= BINARY[suffix]
    nano = digits * int(10**power) if power >= 0 else -(-digits // int(10**-power))
    return min(nano, MAX_INT64 * UNIT)


def canonical(amount: Quantity) -> str:
    """Format as apimachinery does (`Quantity.String`): the largest suffix of its format that leaves a whole number.

    An amount with a binary suffix has none in the result if it is below 1024 or not whole.
    """
    nano = amount.nano
    if nano == 0:
        return "0"
    if amount.format == "BinarySI" and abs(nano) >= 1024 * UNIT and nano % UNIT == 0:
        whole, power = abs(nano) // UNIT, 0
        while power < 6 and whole % 1024 == 0:
            whole, power = whole // 1024, power + 1
        return f"{'-' if nano < 0 else ''}{whole}{_BINARY_SUFFIXES[power]}"
    exponent = -9
    while nano % 1000 == 0 and exponent < 18:
        nano, exponent = nano // 1000, exponent + 3
    if amount.format == "DecimalExponent":
        return f"{nano}e{exponent}" if exponent else str(nano)
    return f"{nano}{_DECIMAL_SUFFIXES[exponent]}"


_BINARY_SUFFIXES: Final = ("", *BINARY)
_DECIMAL_SUFFIXES: Final = {exponent: suffix for suffix, exponent in DECIMAL.items()}


@lru_cache(maxsize=16384)
def _scaled(text: str, part: int) -> int:
    """Return the amount in parts of `part` billionths, rounded away from zero."""
    nano = parse(text).nano
    amount = min(-(-abs(nano) // part), MAX_INT64)
    return amount if nano >= 0 else -amount


def value(quantity: str | int | float) -> int:
    """Return whole units, rounded up: `"1500m"` is 2, `"1Ki"` is 1024. Raises `QuantityError`."""
    return _scaled(quantity if type(quantity) is str else _number(quantity), UNIT)


def milli_value(quantity: str | int | float) -> int:
    """Return thousandths, rounded up: `"0.5"` is 500, `"1"` is 1000. Raises `QuantityError`."""
    return _scaled(quantity if type(quantity) is str else _number(quantity), UNIT // 1000)


def _number(quantity: object) -> str:
    # The API accepts bare numbers, too. A bool is an int in Python; its text is rejected like any other.
    if not isinstance(quantity, str | int | float):
        raise QuantityError(repr(quantity), "form")
    return repr(quantity) if not isinstance(quantity, str) else quantity


def resource_value(resource: str, quantity: str | int | float) -> int:
    """Return the amount of `resource` in the ledger's unit: millicores for cpu, whole units for others."""
    return milli_value(quantity) if resource == "cpu" else value(quantity)


def text_of(resource: str, amount: int) -> str:
    """Format an amount in the ledger's units as `1500m`, `2` or `1.5Gi`. Bytes are rounded to a tenth."""
    if resource == "cpu":
        return f"{amount // 1000}" if amount % 1000 == 0 else f"{amount}m"
    if resource not in ("memory", "ephemeral-storage") and not resource.startswith("hugepages-"):
        return str(amount)
    for suffix, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if abs(amount) >= size:
            return f"{amount / size:.1f}".removesuffix(".0") + suffix
    return str(amount)
