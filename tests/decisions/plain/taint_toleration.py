"""TaintToleration: taints that are not tolerated refuse a node or, if they only ask, lower it.

From `plugins/tainttoleration`. NoSchedule and NoExecute refuse. The raw score is the number of PreferNoSchedule
taints that no toleration for that effect (or for every effect) covers; fewer is better. Weight 3.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.decisions.plain.normalize import by_largest
from tests.decisions.plain.tolerations import tolerated
from tests.decisions.plain.world import Obj, Refusal, World, name, taints

REFUSING = ("NoSchedule", "NoExecute")


def untolerated(pod: Obj, node: Obj) -> bool:
    """Whether a taint of `node` that refuses pods is not tolerated."""
    tolerations = pod["spec"].get("tolerations") or []
    return any(taint["effect"] in REFUSING and not tolerated(taint, tolerations) for taint in taints(node))


def refuse(pod: Obj, node: Obj, world: World) -> Refusal | None:
    if untolerated(pod, node):
        return Refusal(("node(s) had untolerated taint(s)",), unresolvable=True)
    return None


def score(pod: Obj, feasible: Sequence[Obj], world: World) -> dict[str, int] | None:
    tolerations = pod["spec"].get("tolerations") or []
    raw = {
        name(node): sum(
            taint["effect"] == "PreferNoSchedule" and not tolerated(taint, tolerations)
            for taint in taints(node)
        )
        for node in feasible
    }
    return by_largest(raw, reverse=True)
