"""The order of pods and groups that wait for room in a queue.

Higher priority comes first, then earlier creation. The API server reports creation times in whole seconds, and the
order must be the same after a restart, so within one second it is by the number in the name, then by the name.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

_NUMBER: Final = re.compile(r"([0-9]+)")


class TurnKey(NamedTuple):
    """A sort key; lower comes first."""

    priority: int
    created: str
    number: int
    name: tuple[str | int, ...]
    uid: str


@lru_cache(maxsize=4096)
def turn(priority: int, created: str, name: str, uid: str) -> TurnKey:
    """Return the turn of a pod or group. It is asked several times for each pod that is admitted past a gate."""
    number = number_of(name)
    return TurnKey(-priority, created, -1 if number is None else number, _by_number(name), uid)


def number_of(name: str) -> int | None:
    """Return the number after the last dash of a name with at least three parts, which a controller assigned."""
    parts = name.split("-")
    last = parts[-1]
    digits = last[1:] if last[:1] in ("+", "-") else last
    return int(last) if len(parts) >= 3 and digits.isascii() and digits.isdecimal() else None


def _by_number(name: str) -> tuple[str | int, ...]:
    """Split a name into alternating strings and numbers, a string first, so that `a-2` comes before `a-10`."""
    parts: list[str | int] = [*_NUMBER.split(name)]
    parts[1::2] = [int(part) for part in parts[1::2]]
    return tuple(parts)
