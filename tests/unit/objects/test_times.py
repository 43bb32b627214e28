"""Times have one text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from agent_scheduler.objects.times import micro_time_text, time_text


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
