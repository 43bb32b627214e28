"""Times have one text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from apimachinery.times import micro_stamp, micro_time_text, time_text


@pytest.mark.parametrize(
    ("moment", "seconds", "micros"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000000Z"),
        (
            datetime(2026, 1, 1, 3, 0, 59, 999_999, tzinfo=timezone(timedelta(hours=5))),
            "2025-12-31T22:00:59Z",
            "2025-12-31T22:00:59.999999Z",
        ),
    ],
)
def test_a_time_is_written_in_utc_and_cut_to_its_digits(moment: datetime, seconds: str, micros: str) -> None:
    assert time_text(moment) == seconds
    assert micro_time_text(moment) == micros


def test_times_are_written_right_in_any_order_and_at_any_distance() -> None:
    """The text of the last second is cached, so each time is tried after each other."""
    start = datetime(2026, 2, 28, 23, 59, 59, 999_999, tzinfo=UTC)
    moments = [
        start + timedelta(microseconds=step) for step in (0, 1, 2, -1, 1_000_000, -999_999, -1_000_000, 10**14)
    ] + [datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 500_007, tzinfo=UTC)]
    for before in moments:
        for moment in moments:
            micro_time_text(before)
            assert micro_time_text(moment) == f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z".rjust(27, "0")
            micro_time_text(before)
            assert time_text(moment) == f"{moment:%Y-%m-%dT%H:%M:%S}Z".rjust(20, "0")
            micro_time_text(before)
            number, text = micro_stamp(moment)
            assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=number) == moment
            assert text == micro_time_text(moment)
