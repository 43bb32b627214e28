"""Formats of times, labels and selectors in tables and scales."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from .times import TimeFormatError, parse

NONE = "<none>"
UNKNOWN = "<unknown>"


def age(since: str | None, now: str) -> str:
    """Return the time since `since` in kubectl's short form; `<unknown>` if it is unset."""
    if not since:
        return UNKNOWN
    try:
        seconds = (_moment(now) - _moment(since)).total_seconds()
    except TimeFormatError:
        return UNKNOWN
    return human_duration(int(seconds))


# Cached, because all rows of a list have the same current time and objects of a burst the same creation time.
_moment = lru_cache(maxsize=4096)(parse)


def human_duration(seconds: int) -> str:
    """Format a duration as `duration.HumanDuration` of apimachinery does: `90s`, `5m30s`, `3h15m`, `2d4h`, `400d`."""
    if seconds < -1:
        return "<invalid>"
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    minutes, hours = seconds // 60, seconds // 3600
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        return _two(days, "d", hours % 24, "h")
    if hours < 24 * 365 * 2:
        return f"{days}d"
    if hours < 24 * 365 * 8:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def joined(values: Iterable[str], none: str = NONE) -> str:
    return ",".join(values) or none


def labels(selector: Mapping[str, str] | None) -> str:
    return joined(f"{key}={value}" for key, value in sorted((selector or {}).items()))


def label_selector(selector: Mapping[str, Any] | None) -> str:
    """Return a LabelSelector in the form of kubectl's -l."""
    if not selector:
        return NONE
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for requirement in selector.get("matchExpressions") or ():
        key, values = requirement.get("key", ""), ",".join(sorted(requirement.get("values") or ()))
        parts.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }.get(requirement.get("operator", ""), key)
        )
    return joined(parts)
