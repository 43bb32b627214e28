"""PodDisruptionBudgets (policy/v1)."""

from __future__ import annotations

import re
from typing import Any

from ..errors import Cause
from ..resource import Object
from .causes import check_not_negative, invalid, unsupported
from .kind import Logic
from .selectors import check_label_selector

_PERCENT = re.compile(r"[0-9]+%")


def check_int_or_percent(value: int | str, path: str, *, at_most_all: bool = True) -> list[Cause]:
    """A whole number that is not negative, or a percentage."""
    if isinstance(value, int):
        return check_not_negative(path, value)
    if not _PERCENT.fullmatch(value):
        detail = (
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
            "regex used for validation is '[0-9]+%')"
        )
        return [invalid(path, value, detail)]
    if at_most_all and int(value[:-1]) > 100:
        return [invalid(path, value, "must not be greater than 100%")]
    return []


def _check(budget: Object, old: Object | None) -> list[Cause]:
    spec: dict[str, Any] = budget.get("spec") or {}
    causes: list[Cause] = []
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if least is not None and most is not None:
        causes.append(invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    if least is not None:
        causes += check_int_or_percent(least, "spec.minAvailable")
    if most is not None:
        causes += check_int_or_percent(most, "spec.maxUnavailable")
    causes += check_label_selector(spec.get("selector"), "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in ("AlwaysAllow", "IfHealthyBudget"):
        at = "spec.unhealthyPodEvictionPolicy"
        causes.append(unsupported(at, policy, ("AlwaysAllow", "IfHealthyBudget")))
    return causes


def _check_status(budget: Object, old: Object) -> list[Cause]:
    status = budget.get("status") or {}
    causes: list[Cause] = []
    for field in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        causes += check_not_negative(f"status.{field}", status.get(field, 0))
    return causes


LOGIC = {("policy", "PodDisruptionBudget"): Logic(check=_check, check_status=_check_status)}
