"""TaintToleration: taints that are not tolerated refuse a node or, if they only ask, lower it.

From `plugins/tainttoleration`. NoSchedule and NoExecute refuse. The raw score is the number of PreferNoSchedule
taints that no toleration for that effect (or for every effect) covers; fewer is better. Weight 3.

A toleration with an empty effect covers every effect; with an empty key and `Exists` it covers every taint; the
operator defaults to `Equal`; `Gt` and `Lt` compare the taint's value with the toleration's as integers and fail where
either is none (KEP-5471); how long a taint is tolerated does not matter to scheduling (API reference, Toleration).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.decisions.plain.selectors import integer
from tests.decisions.plain.world import Obj, Refusal, World, by_largest, name, taints

REFUSING = ("NoSchedule", "NoExecute")


def tolerates(toleration: Obj, taint: Obj) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case "Equal":
            return (toleration.get("value") or "") == (taint.get("value") or "")
        case "Gt" | "Lt" as operator:
            have, limit = integer(taint.get("value")), integer(toleration.get("value"))
            if have is None or limit is None:
                return False
            return have > limit if operator == "Gt" else have < limit
    raise ValueError(f"operator {toleration['operator']!r}")


def tolerated(taint: Obj, tolerations: Iterable[Obj]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def untolerated(pod: Obj, node: Obj) -> bool:
    """Return whether a taint of `node` that refuses pods is not tolerated."""
    tolerations = pod["spec"].get("tolerations") or []
    return any(taint["effect"] in REFUSING and not tolerated(taint, tolerations) for taint in taints(node))


def refuse(pod: Obj, node: Obj, world: World) -> Refusal | None:
    if untolerated(pod, node):
        return Refusal(("node(s) had untolerated taint(s)",), unresolvable=True)
    return None


def score(pod: Obj, feasible: Sequence[Obj], world: World) -> dict[str, int] | None:
    tolerations = pod["spec"].get("tolerations") or []

    def disliked(node: Obj) -> int:
        soft = [taint for taint in taints(node) if taint["effect"] == "PreferNoSchedule"]
        return sum(not tolerated(taint, tolerations) for taint in soft)

    return by_largest({name(node): disliked(node) for node in feasible}, reverse=True)
