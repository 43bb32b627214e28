"""Conditions of an object's status, as controllers set them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .times import clock_text

Condition = dict[str, Any]


def find(conditions: Iterable[Condition], kind: str) -> Condition | None:
    return next((each for each in conditions if each["type"] == kind), None)


def with_condition(
    conditions: Iterable[Condition],
    kind: str,
    status: str,
    reason: str,
    message: str,
    now: float,
    **more: str,
) -> list[Condition]:
    """All of them with this one, whose `lastTransitionTime` is that of the last change of its status. `now` is in
    seconds since 1970; `more` are other fields of it."""
    known = [*conditions]
    before = find(known, kind)
    since = (
        before["lastTransitionTime"] if before is not None and before["status"] == status else clock_text(now)
    )
    made = {"type": kind, "status": status, "lastTransitionTime": since, **more}
    made |= {key: text for key, text in (("reason", reason), ("message", message)) if text}
    if before is None:
        return [*known, made]
    return [made if each is before else each for each in known]
