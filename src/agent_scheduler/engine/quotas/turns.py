"""Whose turn comes first, of those that wait for room in a queue.

Of higher priority, then who was created first. The API server tells whole seconds alone, and the order has to be the
same after a restart: of those of one second it goes by the number that a controller gave them, then by name.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_NUMBER: Final = re.compile(r"([0-9]+)")


class Turn(NamedTuple):
    """Less comes first."""

    priority: int
    created: str
    number: int
    name: tuple[str | int, ...]
    uid: str


def turn(priority: int, created: str, name: str, uid: str) -> Turn:
    number = number_of(name)
    return Turn(-priority, created, -1 if number is None else number, _by_number(name), uid)


def number_of(name: str) -> int | None:
    """The number behind the last dash of a name of three parts or more, which a controller gave it."""
    parts = name.split("-")
    last = parts[-1]
    digits = last[1:] if last[:1] in ("+", "-") else last
    return int(last) if len(parts) >= 3 and digits.isascii() and digits.isdecimal() else None


def _by_number(name: str) -> tuple[str | int, ...]:
    """Texts and numbers in turns, a text first, so that `a-2` comes before `a-10`."""
    parts: list[str | int] = [*_NUMBER.split(name)]
    parts[1::2] = [int(part) for part in parts[1::2]]
    return tuple(parts)
