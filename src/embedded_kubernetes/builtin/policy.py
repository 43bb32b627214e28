"""PodDisruptionBudgets (policy/v1)."""

from __future__ import annotations

from typing import Any

from ..errors import Cause
from ..resource import Object
from .causes import check_not_negative, invalid
from .kind import Logic


def _check(budget: Object, old: Object | None) -> list[Cause]:
    spec: dict[str, Any] = budget.get("spec") or {}
    if spec.get("minAvailable") is None or spec.get("maxUnavailable") is None:
        return []
    return [invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")]


def _check_status(budget: Object, old: Object) -> list[Cause]:
    status = budget.get("status") or {}
    causes: list[Cause] = []
    for field in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        causes += check_not_negative(f"status.{field}", status.get(field, 0))
    return causes


LOGIC = {("policy", "PodDisruptionBudget"): Logic(check=_check, check_status=_check_status)}
