"""Durations are read and written like Go's."""

from __future__ import annotations

import pytest

from apimachinery.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [
        ("0", 0.0, "0s"),
        ("15s", 15.0, "15s"),
        ("1m30s", 90.0, "1m30s"),
        ("5m", 300.0, "5m0s"),
        ("1.5h", 5400.0, "1h30m0s"),
        ("250ms", 0.25, "250ms"),
        ("1.25s", 1.25, "1.25s"),
        ("10us", 1e-5, "10µs"),
        ("100ns", 1e-7, "100ns"),
        ("1s", 1.0, "1s"),
        ("1ms", 0.001, "1ms"),
        ("0.5ns", 5e-10, "0.5ns"),
        ("1h", 3600.0, "1h0m0s"),
        ("61m", 3660.0, "1h1m0s"),
    ],
)
def test_durations_are_gos(text: str, seconds: float, shown: str) -> None:
    assert parse_duration(text) == pytest.approx(seconds)
    assert format_duration(seconds) == shown


@pytest.mark.parametrize("text", ["", "15", "s", "-5s", "1d", "1s 2s", "1,5s", "٣s", "1e3s", "1s" * 100])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["2562048h", "9999999999999999999999999999999s", f"{'9' * 127}h"])
def test_a_duration_is_limited_as_in_go(text: str) -> None:
    with pytest.raises(ValueError, match="longer than 292 years"):
        parse_duration(text)
