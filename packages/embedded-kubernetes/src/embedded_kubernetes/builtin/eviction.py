"""PodDisruptionBudgets: the decision on an eviction, and a budget's status.

`decide` follows the eviction subresource of pkg/registry/core/pod, `budget_status` the disruption controller.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apimachinery.quantity import MAX_INT64

from ..errors import ApiError, Cause, forbidden
from ..resource import Object, is_true
from .causes import check_not_negative
from .kind import Logic

_NOT_NOW = "Cannot evict pod as it would violate the pod's disruption budget."
#: With more entries, the disruption controller does not process the budget.
_MAX_DISRUPTED = 2000


def matches(selector: dict[str, Any] | None, labels: dict[str, str]) -> bool:
    """Return whether a LabelSelector matches. None matches nothing, an empty selector everything."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(
        requirement_holds(expression, labels.get(expression.get("key", "")))
        for expression in selector.get("matchExpressions") or ()
    )


def requirement_holds(requirement: dict[str, Any], value: str | None) -> bool:
    """Return whether a selector's requirement holds for a label or node field; `value` is None if it is absent."""
    operator, values = requirement.get("operator"), requirement.get("values") or ()
    if operator in ("In", "NotIn"):
        return (value in values) is (operator == "In")
    return (value is None) is (operator != "Exists")


def decide(pod: Object, budgets: list[Object], *, now: str) -> Object | None:
    """Decide whether the pod may be evicted; return the budget with its new status, or None if no budget covers it.

    `budgets` are those of the pod's namespace. Raises 429 if the budget allows no disruption, and 500 if several
    budgets cover the pod.
    """
    phase = (pod.get("status") or {}).get("phase")
    if phase in ("Pending", "Succeeded", "Failed") or "deletionTimestamp" in pod["metadata"]:
        return None
    labels = pod["metadata"].get("labels") or {}
    covering = [budget for budget in budgets if matches(budget["spec"].get("selector"), labels)]
    if not covering:
        return None
    if len(covering) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise ApiError(500, "InternalError", message, {"causes": [{"message": message}]})
    budget = covering[0]
    status = budget.get("status") or {}
    if not is_true(pod.get("status") or {}, "Ready"):
        if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
            return None
        desired = status.get("desiredHealthy", 0)
        if desired > 0 and status.get("currentHealthy", 0) >= desired:
            return None
    _check_room(budget, status)
    changed = dict(budget)
    changed["status"] = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1}
    changed["status"]["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: now}
    if changed["status"]["disruptionsAllowed"] == 0:
        changed["status"]["conditions"] = _conditions(status, 0, budget, now)
    return changed


def _check_room(budget: Object, status: dict[str, Any]) -> None:
    name = budget["metadata"]["name"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        cause = f"The disruption budget {name} is still being processed by the server."
        raise _too_many(cause, retry=10)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise forbidden("poddisruptionbudgets", "policy", name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or ()) > _MAX_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden("poddisruptionbudgets", "policy", name, why)
    if allowed == 0:
        cause = (
            f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods and has "
            f"{status.get('currentHealthy', 0)} currently"
        )
        raise _too_many(cause, retry=0)


def _too_many(cause: str, *, retry: int) -> ApiError:
    details: dict[str, Any] = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    headers = {}
    if retry:
        details["retryAfterSeconds"] = retry
        headers["Retry-After"] = str(retry)
    return ApiError(429, "TooManyRequests", _NOT_NOW, details, headers=headers)


def scaled(amount: int | str | None, total: int) -> int:
    """Return an int-or-percentage of `total`, rounded up as in the disruption controller."""
    if amount is None:
        return 0
    if isinstance(amount, int):
        return min(amount, MAX_INT64)
    percent = int(amount.rstrip("%") or 0)
    return -(-percent * total // 100)


def budget_status(
    budget: Object, *, expected: int, healthy: int, disrupted: dict[str, str], now: str
) -> dict[str, Any]:
    """Return the status of a budget that covers `expected` pods, `healthy` of which are ready and not being disrupted.

    `disrupted` has the time of eviction of pods whose deletion has not been observed, by name. `now` is RFC 3339.
    """
    spec, status = budget["spec"], dict(budget.get("status") or {})
    if spec.get("maxUnavailable") is not None:
        desired = max(expected - scaled(spec["maxUnavailable"], expected), 0)
    else:
        desired = scaled(spec.get("minAvailable"), expected)
    allowed = max(healthy - desired, 0) if expected > 0 else 0
    status |= {
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "observedGeneration": budget["metadata"].get("generation", 0),
        "conditions": _conditions(status, allowed, budget, now),
    }
    if disrupted:
        status["disruptedPods"] = disrupted
    else:
        status.pop("disruptedPods", None)
    return status


def _conditions(status: dict[str, Any], allowed: int, budget: Object, now: str) -> list[dict[str, Any]]:
    state = "True" if allowed > 0 else "False"
    condition = {
        "type": "DisruptionAllowed",
        "status": state,
        "observedGeneration": budget["metadata"].get("generation", 0),
        "lastTransitionTime": now,
        "reason": "SufficientPods" if allowed > 0 else "InsufficientPods",
        "message": "",
    }
    others = []
    for known in status.get("conditions") or ():
        if known.get("type") != "DisruptionAllowed":
            others.append(known)
        elif known.get("status") == state:
            condition["lastTransitionTime"] = known.get("lastTransitionTime", now)
    return [*others, condition]


def _check_status(budget: Object, old: Object) -> Iterator[Cause]:
    status = budget.get("status") or {}
    for field in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        yield from check_not_negative(f"status.{field}", status.get(field, 0))


LOGIC = {("policy", "PodDisruptionBudget"): Logic(check_status=_check_status)}
