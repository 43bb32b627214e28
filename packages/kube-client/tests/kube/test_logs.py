"""Lines that repeat are written at once, and then once a period, with the number of those that were not."""

from __future__ import annotations

import pytest
import structlog
from structlog.testing import capture_logs

from kube_client.logs import LimitedLog, OncePer


def test_a_flood_of_one_line_is_a_line_a_minute_with_the_number_of_the_others() -> None:
    now = 100.0
    with capture_logs() as logged:
        limited = LimitedLog(structlog.get_logger(), clock=lambda: now)
        for number in range(1000):
            limited.warning("not written", pod=f"p-{number}")
        limited.warning("not written", "another key", pod="other")
        now += 59
        limited.warning("not written", pod="late")
        now += 1
        limited.error("not written", pod="last")
    line = {"event": "not written", "log_level": "warning", "held_back": 0}
    assert logged == [
        {**line, "pod": "p-0"},
        {**line, "pod": "other"},
        {**line, "log_level": "error", "pod": "last", "held_back": 1000},
    ]


def test_a_repeated_line_is_let_through_once_a_period_and_counted() -> None:
    now = 0.0
    once = OncePer(10, clock=lambda: now)
    assert [once.admit("a") for _ in range(3)] == [0, None, None]
    assert once.admit("b") == 0
    now = 10.0
    assert once.admit("a") == 2
    now = 20.0
    assert once.admit("a") == 0
    # A line that repeats without a pause passes once in each period.
    told = []
    for second in range(25):
        now = 100.0 + second
        if once.admit("a") is not None:
            told.append(second)
    assert told == [0, 10, 20]


def test_what_is_remembered_of_repeated_lines_is_bounded() -> None:
    once = OncePer(10, clock=lambda: 0.0, keys=2)
    for key in ("a", "b", "a", "c"):
        once.admit(key)
    # "b" was seen least recently and is forgotten; "a" is still held back.
    assert once.admit("a") is None
    assert once.admit("b") == 0


@pytest.mark.parametrize(("seconds", "keys"), [(0, 1), (1, 0)])
def test_a_period_or_a_memory_of_nothing_is_refused(seconds: float, keys: int) -> None:
    with pytest.raises(ValueError, match="OncePer needs"):
        OncePer(seconds, clock=lambda: 0.0, keys=keys)
