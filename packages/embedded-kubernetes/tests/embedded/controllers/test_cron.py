"""Schedules of CronJobs: what robfig/cron accepts, and when it is due."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from embedded.support import cases
from embedded_kubernetes.cron import ScheduleError, parse, time_zone


@cases("""
    schedule | since | following
    '* * * * *' | '2026-01-01T00:00:30' | ['2026-01-01T00:01', '2026-01-01T00:02']
    '*/20 3 * * *' | '2026-01-01T03:20' | ['2026-01-01T03:40', '2026-01-02T03:00']
    '5/30 0-1 1,15 * *' | '2026-01-01T01:35' | ['2026-01-15T00:05', '2026-01-15T00:35']
    '0 0 13 * FRI' | '2026-02-01T00:00' | ['2026-02-06T00:00', '2026-02-13T00:00', '2026-02-20T00:00']
    '0 0 13 * ?' | '2026-02-01T00:00' | ['2026-02-13T00:00', '2026-03-13T00:00']
    '0 12 29 feb *' | '2026-01-01T00:00' | ['2028-02-29T12:00', null]
    '0 0 30 2 *' | '2026-01-01T00:00' | [null]
    '@weekly' | '2026-01-01T00:00' | ['2026-01-04T00:00']
    '@every 1h30m' | '2026-01-01T00:00:10' | ['2026-01-01T01:30:10']
    """)
def test_a_schedule_is_due_at_these_times(schedule: str, since: str, following: list[str | None]) -> None:
    at: datetime | None = datetime.fromisoformat(since).replace(tzinfo=UTC)
    for expected in following:
        assert at is not None
        at = parse(schedule).after(at)
        if expected is None:
            assert at is None or at.year > 2028
        else:
            assert at == datetime.fromisoformat(expected).replace(tzinfo=UTC)


def test_a_time_that_the_change_of_clocks_skips_is_not_due_and_one_that_it_repeats_is_due_twice() -> None:
    zone = time_zone("Europe/Berlin")
    before = datetime(2026, 3, 28, 12, tzinfo=zone)
    assert parse("30 2 * * *").after(before) == datetime(2026, 3, 30, 2, 30, tzinfo=zone)
    first = parse("30 2 * * *").after(datetime(2026, 10, 24, 12, tzinfo=zone))
    assert first is not None
    second = parse("30 2 * * *").after(first)
    assert second is not None
    assert [each.astimezone(UTC).hour for each in (first, second)] == [0, 1]
    assert parse("0 0 * * *").after(first) == datetime(2026, 10, 26, tzinfo=ZoneInfo("Europe/Berlin"))


@cases("""
    schedule | said
    '* * * *' | 'expected exactly 5 fields, found 4: [* * * *]'
    '60 * * * *' | 'end of range (60) above maximum (59): 60'
    '* * 0 * *' | 'beginning of range (0) below minimum (1): 0'
    '* * * * 7' | 'end of range (7) above maximum (6): 7'
    '5-1 * * * *' | 'beginning of range (5) beyond end of range (1): 5-1'
    '*/0 * * * *' | 'step of range should be a positive number: */0'
    'x * * * *' | 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'
    '1/2/3 * * * *' | 'too many slashes: 1/2/3'
    '1-2-3 * * * *' | 'too many hyphens: 1-2-3'
    '@often' | 'unrecognized descriptor: @often'
    '@every x' | 'failed to parse duration @every x'
    """)
def test_what_is_not_a_schedule_is_refused(schedule: str, said: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        parse(schedule)
    assert said in str(refused.value)


def test_the_last_time_is_found_without_a_step_for_every_missed_one() -> None:
    now = datetime(2026, 6, 1, 12, 0, 30, tzinfo=UTC)
    assert parse("0 0 1 1 *").latest(datetime(2020, 1, 1, tzinfo=UTC), now)[0] == datetime(2026, 1, 1, tzinfo=UTC)
    found, missed = parse("* * * * *").latest(datetime(1970, 1, 1, tzinfo=UTC), now)
    assert (found, missed > 100) == (datetime(2026, 6, 1, 12, tzinfo=UTC), True)
    assert parse("@every 1h").latest(now.replace(hour=9), now) == (now, 3)
    assert parse("@hourly").latest(now.replace(minute=0), now.replace(minute=59)) == (None, 0)
