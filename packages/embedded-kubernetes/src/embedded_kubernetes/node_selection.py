"""Matches nodes to pods or allocations: node selectors, required node affinity, taints and tolerations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .builtin.eviction import requirement_holds
from .resource import Object

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
#: Taint effects that prevent scheduling.
_KEEPS_AWAY = ("NoSchedule", "NoExecute")


def selects(term: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    """Return whether a NodeSelectorTerm matches the node. An empty term matches nothing."""
    by_label, by_name = term.get("matchExpressions") or (), term.get("matchFields") or ()
    return bool(by_label or by_name) and (
        all(_holds(each, labels.get(each.get("key", ""))) for each in by_label)
        and all(_holds(each, name) for each in by_name)
    )


def _holds(requirement: dict[str, Any], found: str | None) -> bool:
    operator, values = requirement.get("operator"), requirement.get("values") or ("",)
    if operator not in ("Gt", "Lt"):
        return requirement_holds(requirement, found)
    try:
        have, bound = int(found or ""), int(values[0])
    except ValueError:
        return False
    return have > bound if operator == "Gt" else have < bound


def may_go_to(spec: Object, labels: Mapping[str, str], *, name: str, taints: Iterable[Mapping[str, str]]) -> bool:
    """Return whether a pod with this spec selects the node and tolerates its taints. Capacity is not checked."""
    selector = spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    if affinity is not None and not any(selects(term, labels, name) for term in affinity["nodeSelectorTerms"]):
        return False
    tolerations = spec.get("tolerations") or ()
    return all(
        any(tolerates(each, taint) for each in tolerations) for taint in taints if taint.get("effect") in _KEEPS_AWAY
    )


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, str]) -> bool:
    """Return whether a toleration matches a taint, as ToleratesTaint of k8s.io/api/core/v1 does."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")
