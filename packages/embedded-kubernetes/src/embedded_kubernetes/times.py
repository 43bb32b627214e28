"""RFC 3339 times as the API server reads and writes them.

`metav1.Time` has whole seconds and `metav1.MicroTime` microseconds; both are written in UTC. A text in canonical form
is returned unchanged.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from apimachinery.times import micro_time_text, time_text

#: Patterns of canonical times.
SECONDS = r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\dZ"
MICROS = SECONDS[:-1] + r"\.\d{6}Z"
_SECONDS, _MICROS = re.compile(SECONDS), re.compile(MICROS)
_ANY = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:(Z)|([+-])(\d\d):(\d\d))", re.ASCII)


class TimeFormatError(ValueError):
    """The text is not an RFC 3339 time; the message is that of Go's time.Parse."""


def seconds_time(text: str) -> str:
    """Return a time as `2026-01-01T00:00:00Z`, truncated and converted to UTC. Raises `TimeFormatError`."""
    if _SECONDS.fullmatch(text):
        return text
    return time_text(parse(text, "2006-01-02T15:04:05Z07:00"))


def micro_time(text: str) -> str:
    """Return a time as `2026-01-01T00:00:00.000000Z`. Raises `TimeFormatError`."""
    if _MICROS.fullmatch(text):
        return text
    return micro_time_text(parse(text, "2006-01-02T15:04:05.000000Z07:00"))


def is_micro_time(text: str) -> bool:
    """Return whether a text is a canonical `metav1.MicroTime`."""
    return _MICROS.fullmatch(text) is not None


def clock_text(seconds: float) -> str:
    """Return seconds since 1970 as a `metav1.Time`."""
    return time_text(datetime.fromtimestamp(seconds, UTC))


def micro_clock_text(seconds: float) -> str:
    """Return seconds since 1970 as a `metav1.MicroTime`."""
    return micro_time_text(datetime.fromtimestamp(seconds, UTC))


def parse(text: str, layout: str = "2006-01-02T15:04:05Z07:00") -> datetime:
    """Return the time in UTC. Raises `TimeFormatError`; `layout` is Go's name of the format in the message."""
    match = _ANY.fullmatch(text)
    if match is None:
        raise TimeFormatError(f'parsing time "{text}" as "{layout}": cannot parse "{text}" as "2006"')
    *whole, fraction, _, sign, off_hours, off_minutes = match.groups()
    year, month, day, hour, minute, second = map(int, whole)
    micros = int((fraction or "0")[:6].ljust(6, "0"))
    try:
        moment = datetime(year, month, day, hour, minute, second, micros, UTC)
        if sign:
            offset = timedelta(hours=int(off_hours), minutes=int(off_minutes))
            moment = moment - offset if sign == "+" else moment + offset
    except (ValueError, OverflowError):
        raise TimeFormatError(f'parsing time "{text}": day out of range') from None
    return moment
