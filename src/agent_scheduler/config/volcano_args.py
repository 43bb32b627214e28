"""Reads the plain parts of a Volcano configuration: what is there is of the right kind, and nothing goes unread.

Volcano leaves out in silence what it does not know. Here an argument that nobody asked for is a mistake.
"""

from __future__ import annotations

import re
from typing import Any

from agent_scheduler.config.codec import unknown_key
from agent_scheduler.config.errors import Invalid, Path, found


class Arguments:
    """Of one plugin or action."""

    def __init__(self, value: Any, at: Path) -> None:
        if not isinstance(value, dict | None):
            raise Invalid(at, f"found {found(value)}; allowed: an object")
        self.at = at
        self._left: dict[str, Any] = {
            str(key): item for key, item in (value or {}).items() if item is not None
        }
        self._allowed: list[str] = []

    def take(self, key: str) -> Any:
        """None if it is not given."""
        self._allowed.append(key)
        return self._left.pop(key, None)

    def number(self, key: str, default: int) -> int:
        value = self.take(key)
        if value is None:
            return default
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value.strip()):
            # Volcano's older files have all arguments in quotes.
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1_000_000:
            raise Invalid((*self.at, key), f"found {found(value)}; allowed: a whole number from 0 to 1000000")
        return value

    def switch(self, key: str, default: bool) -> bool:
        value = self.take(key)
        return default if value is None else boolean(value, (*self.at, key))

    def check(self) -> None:
        """Raises Invalid for the first that nobody read."""
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
