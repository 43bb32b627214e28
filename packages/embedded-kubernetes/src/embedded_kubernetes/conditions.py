"""Conditions in a status, as controllers set them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .times import clock_text

Condition = dict[str, Any]


def find(conditions: Iterable[Condition], kind: str) -> Condition | None:
    return next((each for each in conditions if each["type"] == kind), None)


def with_condition(
    conditions: Iterable[Condition], kind: str, status: str, reason: str, message: str, now: float, **more: str
) -> list[Condition]:
    """Return the conditions with this one set; its `lastTransitionTime` changes only with its status.

    `now` is seconds since 1970; `more` are further fields of the condition.
    """
    known = [*conditions]
    before = find(known, kind)
    since = before["lastTransitionTime"] if before is not None and before["status"] == status else clock_text(now)
    made = {"type": kind, "status": status, "lastTransitionTime": since, **more}
    made |= {key: text for key, text in (("reason", reason), ("message", message)) if text}
    if before is None:
        return [*known, made]
    return [made if each is before else each for each in known]
