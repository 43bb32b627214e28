"""Kubernetes quantities as exact integers.

The ledger counts in int64: CPU in millicores, everything else in whole units. A fraction that does not fit the
unit is rounded up, as apimachinery's `Quantity.Value` and `MilliValue` do, so that a request is never taken
for less than it is.
"""

from __future__ import annotations

import re
from functools import lru_cache

#: The largest amount an int64 column holds. Larger quantities are clamped to it, as `Quantity` does.
MAX_INT64 = 2**63 - 1

_PATTERN = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]+))?")

#: Suffix to (base, exponent).
_SUFFIX = {
    "n": (10, -9),
    "u": (10, -6),
    "m": (10, -3),
    "k": (10, 3),
    "M": (10, 6),
    "G": (10, 9),
    "T": (10, 12),
    "P": (10, 15),
    "E": (10, 18),
    "Ki": (2, 10),
    "Mi": (2, 20),
    "Gi": (2, 30),
    "Ti": (2, 40),
    "Pi": (2, 50),
    "Ei": (2, 60),
}


class QuantityError(ValueError):
    """A text that is not a quantity."""


@lru_cache(maxsize=16384)
def _scaled(text: str, milli: bool) -> int:
    match = _PATTERN.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        raise QuantityError(
            f"invalid quantity {text[:64]!r}: expected a number with an optional suffix "
            "(n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent)"
        )
    sign, whole, fraction, suffix, exponent = match.groups()
    fraction = fraction or ""
    base, power = _SUFFIX[suffix] if suffix else (10, int(exponent or 0))
    if abs(power) > 64:
        # Far beyond int64 in either direction; the digits no longer matter.
        digits = int((whole or "") + fraction or "0")
        amount = 0 if digits == 0 else (MAX_INT64 if power > 0 else 1)
        return -amount if sign == "-" else amount
    numerator = int((whole + fraction) or "0") * (1000 if milli else 1)
    denominator = 10 ** len(fraction)
    if power >= 0:
        numerator *= base**power
    else:
        denominator *= base**-power
    amount = min(int(-(-numerator // denominator)), MAX_INT64)
    return -amount if sign == "-" else amount


def value(quantity: str | int | float) -> int:
    """Whole units, rounded up: `"1500m"` is 2, `"1Ki"` is 1024. Raises `QuantityError`."""
    return _scaled(quantity if type(quantity) is str else _number(quantity), False)


def milli_value(quantity: str | int | float) -> int:
    """Thousandths, rounded up: `"0.5"` is 500, `"1"` is 1000. Raises `QuantityError`."""
    return _scaled(quantity if type(quantity) is str else _number(quantity), True)


def _number(quantity: object) -> str:
    # The API takes bare numbers too; bool is an int to Python but never a quantity.
    if isinstance(quantity, bool) or not isinstance(quantity, str | int | float):
        raise QuantityError(f"invalid quantity {quantity!r}: expected a text or a number")
    return repr(quantity) if not isinstance(quantity, str) else quantity


def resource_value(resource: str, quantity: str | int | float) -> int:
    """The amount of `resource` in the ledger's unit: millicores for cpu, whole units for all else."""
    return milli_value(quantity) if resource == "cpu" else value(quantity)
