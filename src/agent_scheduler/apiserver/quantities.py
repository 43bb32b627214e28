"""The one text that a Kubernetes API server writes for a quantity.

A server parses every quantity and writes it back in canonical form, so that `1000m` reads as `1` and `1024Mi`
as `1Gi`; clients compare what they read. The rules are those of apimachinery's `resource.Quantity`: precision
down to nano (rounded away from zero), at most 2^63-1, the format (binary, decimal or exponent) of the text kept
where the amount allows it.
"""

from __future__ import annotations

import re
from functools import lru_cache

#: What `resource.Quantity` accepts at most; larger amounts are clamped to it.
_MAX_NANO = (2**63 - 1) * 10**9

#: Python refuses to read integers much longer than this, for their cost is quadratic.
_MAX_DIGITS = 1000

#: The texts of Go's `ErrFormatWrong` and `ErrSuffix`, which clients see.
FORMAT_WRONG = r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
SUFFIX_WRONG = "unable to parse quantity's suffix"
NUMBER_WRONG = "unable to parse numeric part of quantity"

_FORM = re.compile(r"([+-]?)([0-9]*)(\.[0-9]*)?([eEinumkKMGTP]*[-+]?[0-9]*)")
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY_SUFFIX = ("", *_BINARY)


class QuantityFormatError(ValueError):
    """A text that is not a quantity; the message is Go's."""


@lru_cache(maxsize=65536)
def canonical_quantity(text: str) -> str:
    """The canonical text of a quantity: `"0.5"` is `"500m"`, `"1024Mi"` is `"1Gi"`, `"1e3"` stays.

    Raises `QuantityFormatError`.
    """
    match = _FORM.fullmatch(text)
    if match is None or not (match[2] or match[3] or match[4]):
        raise QuantityFormatError(FORMAT_WRONG)
    sign, whole, fraction, suffix = match.groups()
    digits = (whole or "") + (fraction or "")[1:]
    if not digits or len(digits) > _MAX_DIGITS:
        raise QuantityFormatError(NUMBER_WRONG if match[3] or digits else FORMAT_WRONG)
    exponent = _EXPONENT.fullmatch(suffix)
    if suffix not in _DECIMAL and suffix not in _BINARY and exponent is None:
        raise QuantityFormatError(SUFFIX_WRONG)

    nano = _nano(int(digits), len(digits) - len(whole or ""), suffix, int(exponent[1]) if exponent else None)
    if suffix in _BINARY and nano >= 1024 * 10**9 and nano % 10**9 == 0:
        body = _binary(nano // 10**9)
    else:
        body = _decimal(nano, exponent is not None)
    return f"-{body}" if sign == "-" and nano else body


def _nano(digits: int, decimals: int, suffix: str, exponent: int | None) -> int:
    """The amount in 10^-9 units, rounded away from zero and clamped."""
    power = exponent if exponent is not None else _DECIMAL.get(suffix, 0)
    # Beyond this the amount is clamped or rounds to one nano whatever its digits; do not build the power.
    power = max(min(power, 400), -400)
    power += 9 - decimals
    if suffix in _BINARY:
        digits <<= _BINARY[suffix]
    if power >= 0:
        return min(digits * int(10**power), _MAX_NANO)
    return min(-(-digits // int(10**-power)), _MAX_NANO)


def _binary(amount: int) -> str:
    steps = 0
    while amount % 1024 == 0 and steps < len(_BINARY_SUFFIX) - 1:
        amount //= 1024
        steps += 1
    return f"{amount}{_BINARY_SUFFIX[steps]}"


def _decimal(nano: int, as_exponent: bool) -> str:
    if nano == 0:
        return "0"
    power = -9
    while nano % 1000 == 0 and power < 18:
        nano //= 1000
        power += 3
    if not as_exponent:
        return f"{nano}{_DECIMAL_SUFFIX[power]}"
    return f"{nano}e{power}" if power else str(nano)
