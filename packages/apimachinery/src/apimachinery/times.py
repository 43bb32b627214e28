"""RFC 3339 times in the format of the Kubernetes API: UTC with whole seconds or exactly six decimal digits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_THREE_DIGITS = tuple(f"{number:03d}" for number in range(1000))


class _Second:
    """A second: its start, the text of that, and the microseconds since 1970."""

    __slots__ = ("micros", "start", "text")

    def __init__(self, start: datetime) -> None:
        self.start = start
        self.text = start.isoformat()[:-6]
        self.micros = (start - _EPOCH) // timedelta(microseconds=1)


class _Stamps:
    """Owns the second of the last formatted time.

    Most times are in the same second, and formatting one completely takes several microseconds, several times per
    pod. The second is replaced as a whole, so threads do not interfere.
    """

    __slots__ = ("_second",)

    def __init__(self) -> None:
        self._second = _Second(_EPOCH)

    def stamp(self, moment: datetime) -> tuple[int, str]:
        """Return the microseconds since 1970, and the text of `micro_time_text`. `moment` must be time zone aware."""
        second = self._second
        since = moment - second.start
        if since.days or since.seconds:
            second = self._second = _Second(moment.astimezone(UTC).replace(microsecond=0))
            since = moment - second.start
        micros = since.microseconds
        digits = f"{_THREE_DIGITS[micros // 1000]}{_THREE_DIGITS[micros % 1000]}"
        return second.micros + micros, f"{second.text}.{digits}Z"


micro_stamp = _Stamps().stamp


def micro_time_text(moment: datetime) -> str:
    """Format a `metav1.MicroTime`: `2026-01-01T00:00:00.000000Z`. `moment` must be time zone aware."""
    return micro_stamp(moment)[1]


def time_text(moment: datetime) -> str:
    """Format a `metav1.Time`: `2026-01-01T00:00:00Z`, truncated to seconds. `moment` must be time zone aware."""
    return f"{micro_stamp(moment)[1][:-8]}Z"
