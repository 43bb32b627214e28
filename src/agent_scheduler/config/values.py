"""Values that files of settings are made of, whatever they set, and durations as Go writes them (`1m30s`). Imports
nothing of the scheduler."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta, Struct

Duration = Annotated[float, Meta(ge=0, extra={"duration": True})]
PositiveInt = Annotated[int, Meta(ge=1)]
Rate = Annotated[float, Meta(ge=0)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Name = Annotated[str, Meta(pattern=r"^\S+$", extra={"allowed": "a name without spaces"})]

#: A setting that takes effect while the process runs, with all that is below it. Every other needs a restart.
LIVE = Meta(extra={"live": True})


def flag(names: str | tuple[str, ...], text: str, metavar: str = "N") -> Meta:
    """The flag that overrides a setting, its first name the one that errors use. `text` is its help, to which the
    default is added unless it says it."""
    return Meta(extra={"flag": ((names,) if isinstance(names, str) else names, text, metavar)})


class Section(Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all sections."""


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_WHOLE = re.compile(f"(?:{_PART.pattern})+")


def parse_duration(text: str) -> float:
    """Seconds. As Go's `time.ParseDuration`, without negative ones. Raises ValueError."""
    if text == "0":
        return 0.0
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def format_duration(seconds: float) -> str:
    """As Go prints it: `5m0s`, `1.5s`, `100ms`. Seconds are exact to the nanosecond."""
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
