"""RFC 3339 times as the Kubernetes API writes them: in UTC, with whole seconds or exactly six digits of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_THREE_DIGITS = tuple(f"{number:03d}" for number in range(1000))


class _Second:
    """A whole second: when it starts, the text of that, and the microseconds from 1970 to it."""

    __slots__ = ("micros", "start", "text")

    def __init__(self, start: datetime) -> None:
        self.start = start
        self.text = start.isoformat()[:-6]
        self.micros = (start - _EPOCH) // timedelta(microseconds=1)


class _Stamps:
    """Owner of the second of the time that was written last.

    Most times are written just after it, and to write one all anew takes several microseconds, several times a pod.
    It is replaced as a whole, so threads do not disturb each other.
    """

    __slots__ = ("_second",)

    def __init__(self) -> None:
        self._second = _Second(_EPOCH)

    def stamp(self, moment: datetime) -> tuple[int, str]:
        """The microseconds since 1970, and the text as `micro_time_text` gives it. `moment` knows its offset."""
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
    """`metav1.MicroTime`: `2026-01-01T00:00:00.000000Z`. `moment` knows its offset."""
    return micro_stamp(moment)[1]


def time_text(moment: datetime) -> str:
    """`metav1.Time`: `2026-01-01T00:00:00Z`; parts of a second are cut off. `moment` knows its offset."""
    return f"{micro_stamp(moment)[1][:-8]}Z"
