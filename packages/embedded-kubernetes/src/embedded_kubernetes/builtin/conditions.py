"""Validation of `conditions` with the type metav1.Condition."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..errors import Cause
from ..resource import Object
from . import names
from .causes import check_format, duplicate, invalid, required, too_long, unsupported

_STATUSES = ("False", "True", "Unknown")
_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_reason = re.compile(_REASON).fullmatch
_LONGEST_REASON, _LONGEST_MESSAGE = 1024, 32 * 1024


def check_conditions(conditions: Sequence[Object], at: str) -> Iterator[Cause]:
    """Check that each condition is complete and each type unique."""
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        where, kind = f"{at}[{index}]", condition.get("type", "")
        if kind in seen:
            yield duplicate(f"{where}.type", kind)
        seen.add(kind)
        yield from check_format(f"{where}.type", kind, names.qualified)
        if condition.get("status", "") not in _STATUSES:
            yield unsupported(f"{where}.status", condition.get("status", ""), _STATUSES)
        generation = condition.get("observedGeneration", 0)
        if generation < 0:
            yield invalid(f"{where}.observedGeneration", generation, "must be greater than or equal to zero")
        if not condition.get("lastTransitionTime"):
            yield required(f"{where}.lastTransitionTime", "must be set")
        yield from _check_reason(condition.get("reason", ""), f"{where}.reason")
        if len(condition.get("message", "").encode()) > _LONGEST_MESSAGE:
            yield too_long(f"{where}.message", _LONGEST_MESSAGE)


def _check_reason(reason: str, at: str) -> Iterator[Cause]:
    if not reason:
        yield required(at, "must be set")
        return
    if not _reason(reason):
        why = (
            "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
            "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  "
            f"or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '{_REASON}')"
        )
        yield invalid(at, reason, why)
    if len(reason.encode()) > _LONGEST_REASON:
        yield too_long(at, _LONGEST_REASON)
