"""Decides which objects are set aside because handling them ended the process or failed.

It is pure: the caller passes the time.

An end of the process counts against the object of the step that did not return. An object with `ENDS` ends is not
handled for `SECONDS` after the last of them, or until it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

#: The number of ends after which an object is set aside.
ENDS: Final = 2
#: Seconds for which it is. If its next handling ends the process again, it is set aside again at once.
SECONDS: Final = 3600.0
#: Seconds after the last end of an object after which its record is dropped, and the limit of records.
_KEPT: Final = 24 * 3600.0
MOST: Final = 64


class StepSubject(msgspec.Struct, frozen=True, array_like=True):
    """The object that a step handles."""

    step: str
    kind: str
    namespace: str
    name: str
    uid: str
    version: str
    #: 0 if it is unknown.
    generation: int = 0

    @property
    def place(self) -> tuple[str, str]:
        return self.step, self.uid

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def is_same(self, other: StepSubject) -> bool:
        """Return whether both are steps of one kind on one object that has not changed, except for its status."""
        same = self.version == other.version or 0 != self.generation == other.generation
        return same and self.place == other.place and self.kind == other.kind


class EndRecord(msgspec.Struct, frozen=True, array_like=True):
    """The number of ends of the process in steps on an object, and the time of the last one in seconds since 1970."""

    subject: StepSubject
    ends: int
    at: float


def with_ends(records: Iterable[EndRecord], subjects: Sequence[StepSubject], now: float) -> tuple[EndRecord, ...]:
    """Return the records with one more end for each of the subjects, the latest records last."""
    kept = [each for each in records if now - each.at < _KEPT]
    for subject in subjects:
        ends = 1
        for each in [each for each in kept if each.subject.is_same(subject)]:
            ends += each.ends
            kept.remove(each)
        kept.append(EndRecord(subject, ends, now))
    return tuple(kept[-MOST:])


class _Reason(NamedTuple):
    subject: StepSubject
    text: str
    #: The time in seconds since 1970 at which the object is handled again.
    until: float


class SetAside:
    """The objects that are set aside, by step and UID. Owned by the `ObjectHandling` of a process."""

    def __init__(self) -> None:
        self._reasons: dict[tuple[str, str], _Reason] = {}
        #: What the handling of an object depends on, as found when it was met first.
        self._looks: dict[tuple[str, str], object] = {}
        #: Whether there are any.
        self.any = False

    def read(self, records: Iterable[EndRecord]) -> None:
        """Set aside the objects of records with enough ends."""
        for each in records:
            if each.ends >= ENDS:
                text = f"the process ended {each.ends} times while it handled this object ({each.subject.step})"
                self.add(each.subject, text, until=each.at + SECONDS)

    def add(self, subject: StepSubject, why: str, *, until: float, looks: object = None) -> None:
        """Set an object aside until a time, or until it changes."""
        self._looks.pop(subject.place, None)
        self._reasons.pop(subject.place, None)
        while len(self._reasons) >= 2 * MOST:
            oldest = next(iter(self._reasons))
            del self._reasons[oldest]
            self._looks.pop(oldest, None)
        self._reasons[subject.place] = _Reason(subject, why, until)
        self.any = True
        if looks is not None:
            self._looks[subject.place] = looks

    def why(self, subject: StepSubject, now: float, looks: object = None) -> str:
        """Return why an object is not handled; empty if it is.

        An object that differs in `looks` from the first time that it was met has changed, even if its version says
        otherwise.
        """
        place = subject.place
        found = self._reasons.get(place)
        if found is None:
            return ""
        same = found.subject.is_same(subject) if looks is None or place not in self._looks else True
        if not same or now >= found.until or self._looks.setdefault(place, looks) != looks:
            del self._reasons[place]
            self._looks.pop(place, None)
            self.any = bool(self._reasons)
            return ""
        return f"set aside: {found.text}; it is handled again when it changes, or after an hour"
