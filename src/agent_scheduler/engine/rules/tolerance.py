"""Toleration of taints, shared by NodeUnschedulable, TaintToleration and PodTopologySpread.

The rule is `Toleration.ToleratesTaint` of k8s.io/api: an empty key or effect in the toleration matches any, the
operator is Equal by default, and Lt and Gt compare integers (KEP-5471).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent_scheduler.objects.wire import Taint, Toleration

from ..state.podspec import parse_int


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    operator = toleration.operator or "Equal"
    if operator == "Exists":
        return True
    if operator == "Equal":
        return (toleration.value or "") == (taint.value or "")
    bound, value = parse_int(toleration.value or ""), parse_int(taint.value or "")
    if bound is None or value is None:
        return False
    return value < bound if operator == "Lt" else value > bound


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def schedulable(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> bool:
    """Return whether every taint that repels pods is tolerated."""
    return all(tolerated(taint, tolerations) for taint in taints if taint.effect in ("NoSchedule", "NoExecute"))
