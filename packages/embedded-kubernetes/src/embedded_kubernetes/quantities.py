"""The canonical form of quantities.

The API server parses every quantity and writes it in canonical form: `1000m` becomes `1` and `1024Mi` becomes `1Gi`.
Clients compare these texts. The rules are those of apimachinery's `resource.Quantity`: precision to nano (rounded
away from zero), at most 2^63-1, and the format of the text (binary, decimal or exponent) is kept where possible.
"""

from __future__ import annotations

from functools import lru_cache

from apimachinery.quantity import BINARY, DECIMAL, UNIT, QuantityError, parse

#: The messages of Go's `ErrFormatWrong`, `ErrSuffix` and `ErrNumeric`, which clients see.
FORMAT_WRONG = r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
SUFFIX_WRONG = "unable to parse quantity's suffix"
NUMBER_WRONG = "unable to parse numeric part of quantity"
_WRONG = {"form": FORMAT_WRONG, "number": NUMBER_WRONG, "suffix": SUFFIX_WRONG}

_DECIMAL_SUFFIX = {power: suffix for suffix, power in DECIMAL.items()}
_BINARY_SUFFIX = ("", *BINARY)


class QuantityFormatError(ValueError):
    """The text is not a quantity; the message is Go's."""


@lru_cache(maxsize=65536)
def canonical_quantity(text: str) -> str:
    """Return the canonical text of a quantity: `"0.5"` is `"500m"`, `"1024Mi"` is `"1Gi"`, `"1e3"` is unchanged.

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
