"""The one text that a Kubernetes API server writes for a quantity.

A server parses every quantity and writes it back in canonical form, so that `1000m` reads as `1` and `1024Mi`
as `1Gi`; clients compare what they read. The rules are those of apimachinery's `resource.Quantity`: precision
down to nano (rounded away from zero), at most 2^63-1, the format (binary, decimal or exponent) of the text kept
where the amount allows it.
"""

from __future__ import annotations

from functools import lru_cache

from apimachinery.quantity import BINARY, DECIMAL, UNIT, QuantityError, parse

#: The texts of Go's `ErrFormatWrong` and `ErrSuffix`, which clients see.
FORMAT_WRONG = r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
SUFFIX_WRONG = "unable to parse quantity's suffix"
NUMBER_WRONG = "unable to parse numeric part of quantity"
_WRONG = {"form": FORMAT_WRONG, "number": NUMBER_WRONG, "suffix": SUFFIX_WRONG}

_DECIMAL_SUFFIX = {power: suffix for suffix, power in DECIMAL.items()}
_BINARY_SUFFIX = ("", *BINARY)


class QuantityFormatError(ValueError):
    """A text that is not a quantity; the message is Go's."""


@lru_cache(maxsize=65536)
def canonical_quantity(text: str) -> str:
    """The canonical text of a quantity: `"0.5"` is `"500m"`, `"1024Mi"` is `"1Gi"`, `"1e3"` stays.

    Raises `QuantityFormatError`.
    """
    try:
        quantity = parse(text)
    except QuantityError as error:
        raise QuantityFormatError(_WRONG[error.part]) from None
    nano = abs(quantity.nano)
    if quantity.format == "BinarySI" and nano >= 1024 * UNIT and nano % UNIT == 0:
        body = _binary(nano // UNIT)
    else:
        body = _decimal(nano, quantity.format == "DecimalExponent")
    return f"-{body}" if quantity.nano < 0 else body


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
