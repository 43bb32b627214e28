"""Schedules of CronJobs in the syntax of github.com/robfig/cron, which kube-controller-manager uses. Pure.

Fields are minute, hour, day of month, month and day of week, with names, lists, ranges and steps; `?` is `*`. If both
days are restricted, either suffices. In a time zone, a time that a change to summer time skips is never due, and one
that the change back repeats is due twice.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from apimachinery.durations import parse_duration

_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_DAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
#: Lowest and highest value of each field, and its names.
_FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)
#: Years after which a schedule counts as never due, such as that of February 30.
_YEARS = 5
#: `latest` searches these numbers of days before now, one after the other: a day has 1,440 times at most.
_WINDOWS = (1, 40, 366 * _YEARS)
_NUMBER = re.compile(r"\d+", re.ASCII)


class ScheduleError(ValueError):
    """The text is not a schedule; the message is that of robfig/cron."""


class _CronField(NamedTuple):
    values: frozenset[int]
    #: Whether it was given as `*` or `?`, without a step.
    every: bool


class Schedule(NamedTuple):
    """A parsed schedule: five fields, or a period of seconds for `@every`."""

    fields: tuple[_CronField, ...]
    period: int = 0

    def after(self, moment: datetime) -> datetime | None:
        """Return the first time after `moment`, in its time zone; None if there is none within five years."""
        if self.period:
            return moment.replace(microsecond=0) + timedelta(seconds=self.period)
        zone = moment.tzinfo or UTC
        at = _local(moment.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1), zone)
        minute, hour, _, month, _ = self.fields
        last = at.year + _YEARS
        while at.year <= last:
            if at.month not in month.values or not self._has_day(at):
                at = _next_day(at, zone)
            elif at.hour not in hour.values:
                at = _later(at, 60 - at.minute, zone)
            elif at.minute not in minute.values:
                at = _later(at, 1, zone)
            else:
                return at
        return None

    def latest(self, since: datetime, now: datetime) -> tuple[datetime | None, int]:
        """Return the last time after `since` and not after `now`, and a number of times, exact up to a hundred."""
        if self.period:
            count = int((now - since).total_seconds()) // self.period
            last = since.replace(microsecond=0) + timedelta(seconds=count * self.period)
            return (last if count > 0 else None), count
        for days in _WINDOWS:
            found: datetime | None = None
            count = 0
            at = self.after(max(since, now - timedelta(days=days)))
            while at is not None and at <= now:
                found, count = at, count + 1
                at = self.after(at)
            if found is not None:
                return found, count
        return None, 0

    def _has_day(self, at: datetime) -> bool:
        day, weekday = self.fields[2], self.fields[4]
        matches = (at.day in day.values, at.isoweekday() % 7 in weekday.values)
        return all(matches) if day.every or weekday.every else any(matches)


def _local(moment: datetime, zone: tzinfo) -> datetime:
    return moment.astimezone(zone)


def _later(at: datetime, minutes: int, zone: tzinfo) -> datetime:
    return _local(at.astimezone(UTC) + timedelta(minutes=minutes), zone)


def _next_day(at: datetime, zone: tzinfo) -> datetime:
    """Return the first existing minute of the next day."""
    midnight = datetime(at.year, at.month, at.day, tzinfo=zone) + timedelta(days=1)
    # A midnight that does not exist is converted to the first minute after the gap.
    return _local(midnight.astimezone(UTC), zone)


def parse(text: str) -> Schedule:
    """Parse a schedule without a time zone. Raises `ScheduleError`."""
    if text.startswith("@"):
        if text.startswith("@every "):
            try:
                seconds = int(parse_duration(text.removeprefix("@every ")))
            except ValueError as error:
                raise ScheduleError(f"failed to parse duration {text}: {error}") from None
            return Schedule((), max(1, seconds))
        if text not in _DESCRIPTORS:
            raise ScheduleError(f"unrecognized descriptor: {text}")
        text = _DESCRIPTORS[text]
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise ScheduleError(f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]")
    return Schedule(tuple(_field(part, *bounds) for part, bounds in zip(parts, _FIELDS, strict=True)))


def _field(text: str, low: int, high: int, names: dict[str, int]) -> _CronField:
    values: set[int] = set()
    every = False
    for part in text.split(","):
        span, slash, step_text = part.partition("/")
        first, dash, last = span.partition("-")
        if "/" in step_text:
            raise ScheduleError(f"too many slashes: {part}")
        if "-" in last:
            raise ScheduleError(f"too many hyphens: {part}")
        step = _number(step_text, {}) if slash else 1
        if first in ("*", "?"):
            start, end = low, high
            every = every or step == 1
        else:
            start = _number(first, names)
            end = _number(last, names) if dash else high if slash else start
        for wrong, why in (
            (start < low, f"beginning of range ({start}) below minimum ({low}): {part}"),
            (end > high, f"end of range ({end}) above maximum ({high}): {part}"),
            (start > end, f"beginning of range ({start}) beyond end of range ({end}): {part}"),
            (step == 0, f"step of range should be a positive number: {part}"),
        ):
            if wrong:
                raise ScheduleError(why)
        values.update(range(start, end + 1, step))
    return _CronField(frozenset(values), every)


def _number(text: str, names: dict[str, int]) -> int:
    if (named := names.get(text.lower())) is not None:
        return named
    if not _NUMBER.fullmatch(text):
        raise ScheduleError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    return int(text)


def time_zone(name: str | None) -> tzinfo:
    """Return a time zone by its IANA name, UTC for None. Raises `ScheduleError`."""
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ScheduleError(f"unknown time zone {name}") from None
