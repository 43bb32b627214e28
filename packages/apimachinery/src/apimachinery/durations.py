"""Durations in Go's format (`1m30s`), for settings and annotations."""

from __future__ import annotations

import re

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_WHOLE = re.compile(f"(?:{_PART.pattern})+")
#: The limit of characters, since annotations of users are parsed repeatedly.
_LONGEST = 128
#: Go counts nanoseconds in int64.
_MOST = 2**63 / 1e9


def parse_duration(text: str) -> float:
    """Return seconds, as Go's `time.ParseDuration` without negative durations. Raises ValueError."""
    if text == "0":
        return 0.0
    if len(text) > _LONGEST or not _WHOLE.fullmatch(text):
        raise ValueError(f"{text[:_LONGEST]!r} is not a duration")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if seconds >= _MOST:
        raise ValueError(f"{text!r} is longer than 292 years")
    return seconds


def format_duration(seconds: float) -> str:
    """Format as Go does: `5m0s`, `1.5s`, `100ms`. Seconds are exact to the nanosecond."""
    if seconds == 0:
        return "0s"
    if seconds < 1:
        for unit in ("ms", "µs", "ns"):
            number = seconds / _UNITS[unit]
            if number >= 1 or unit == "ns":
                return f"{number:.9g}{unit}"
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    head = f"{hours:.0f}h" if hours else ""
    if hours or minutes:
        head += f"{minutes:.0f}m"
    return f"{head}{round(rest, 9):.11g}s"
