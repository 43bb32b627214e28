"""Checks arguments of Volcano's plugins and actions: their types, and that all are known.

Volcano ignores unknown arguments; here they are errors.

Volcano adds up the scores of several plugins for a node's utilization; here one strategy covers all. Each score is
linear in the requested shares of a node's resources: `leastrequested` falls with them, `mostrequested` and `binpack`
rise. So is their sum, and a sum whose parts all fall or all rise is one strategy with its weights. A sum that rises
with one resource and falls with another has no equivalent and is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import Any

from apimachinery.codec import Warn, unknown_key
from apimachinery.errors import Invalid, Path, found


class Arguments:
    """The arguments of one plugin or action."""

    def __init__(self, value: Any, at: Path) -> None:
        if not isinstance(value, dict | None):
            raise Invalid(at, f"found {found(value)}; allowed: an object")
        self.at = at
        self._left: dict[str, Any] = {str(key): item for key, item in (value or {}).items() if item is not None}
        self._allowed: list[str] = []

    def take(self, key: str) -> Any:
        """Remove and return an argument; None if it is missing."""
        self._allowed.append(key)
        return self._left.pop(key, None)

    def number(self, key: str, default: int) -> int:
        value = self.take(key)
        if value is None:
            return default
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value.strip()):
            # Volcano's older files quote all arguments.
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1_000_000:
            raise Invalid((*self.at, key), f"found {found(value)}; allowed: a whole number from 0 to 1000000")
        return value

    def switch(self, key: str, default: bool) -> bool:
        value = self.take(key)
        return default if value is None else boolean(value, (*self.at, key))

    def check(self) -> None:
        """Raise Invalid for the first argument that was not taken."""
        for key in self._left:
            raise Invalid((*self.at, key), unknown_key(key, self._allowed))


def listed(value: Any, at: Path) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise Invalid(at, f"found {found(value)}; allowed: a list")
    return value


def known(value: Any, keys: tuple[str, ...], at: Path, also: re.Pattern[str] | None = None) -> None:
    if not isinstance(value, dict):
        raise Invalid(at, f"found {found(value)}; allowed: an object with {', '.join(keys)}")
    for key in value:
        if key not in keys and not (also is not None and also.fullmatch(str(key))):
            raise Invalid((*at, str(key)), unknown_key(key, keys))


def boolean(value: Any, at: Path) -> bool:
    plain = {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value
    if not isinstance(plain, bool):
        raise Invalid(at, f"found {found(value)}; allowed: true, false")
    return plain


#: The maximum weight of a resource.
_MOST = 100


@dataclass(frozen=True, slots=True)
class RequestedScore:
    """A requested score: a weight, negative to prefer empty nodes, distributed to resources by their own weights."""

    key: str
    weight: int
    resources: Mapping[str, int]
    path: Path


@dataclass(frozen=True, slots=True)
class FitScore:
    """The score of NodeResourcesFit: its weight, and its strategy as in a file."""

    weight: int
    strategy: Mapping[str, Any]


def combined(wishes: Sequence[RequestedScore], warn: Warn) -> FitScore | None:
    """Combine all wishes into one strategy; None if they have no effect. Raises Invalid if that is impossible."""
    asking = [wish for wish in wishes if wish.weight and any(wish.resources.values())]
    slopes: dict[str, Fraction] = {}
    for wish in asking:
        parts = sum(wish.resources.values())
        for name, weight in wish.resources.items():
            slopes[name] = slopes.get(name, Fraction()) + Fraction(wish.weight * weight, parts)
    slopes = {name: slope for name, slope in slopes.items() if slope}
    if not slopes:
        if asking:
            warn(asking[-1].path, f"has no effect: {' and '.join(wish.key for wish in asking)} cancel each other")
        return None
    rising = [name for name, slope in slopes.items() if slope > 0]
    if rising and len(rising) < len(slopes):
        keys = " and ".join(wish.key for wish in asking)
        last = asking[-1]
        raise Invalid(
            last.path,
            f"{keys} together prefer nodes full of {', '.join(sorted(rising))} and empty of "
            f"{', '.join(sorted(slopes.keys() - set(rising)))}, which is not supported; set one of them to 0",
        )
    total = _whole(abs(sum(slopes.values(), Fraction())))
    if len(asking) > 1:
        others = ", ".join(wish.key for wish in asking[:-1])
        kind = "MostAllocated" if rising else "LeastAllocated"
        warn(asking[-1].path, f"counts together with {others} as one strategy, {kind} with weight {total}")
    return FitScore(
        total,
        {
            "type": "MostAllocated" if rising else "LeastAllocated",
            "resources": [{"name": name, "weight": each} for name, each in _weights(slopes).items()],
        },
    )


def _whole(weight: Fraction) -> int:
    # Wishes have integer weights, and each is distributed to its resources completely.
    assert weight.denominator == 1, weight
    return weight.numerator


def _weights(slopes: Mapping[str, Fraction]) -> dict[str, int]:
    """Return the smallest integers in the proportion of `slopes`, rounded if they would be too large."""
    scale = lcm(*(slope.denominator for slope in slopes.values()))
    numbers = {name: abs(int(slope * scale)) for name, slope in slopes.items()}
    common = gcd(*numbers.values())
    numbers = {name: number // common for name, number in numbers.items()}
    top = max(numbers.values())
    if top <= _MOST:
        return numbers
    return {name: max(1, round(number * _MOST / top)) for name, number in numbers.items()}
