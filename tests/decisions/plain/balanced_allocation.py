"""NodeResourcesBalancedAllocation: prefers the node whose CPU and memory the pod balances.

From `plugins/noderesources/balanced_allocation.go` since kubernetes#135573 (1.36). The balance of a node is `int((1 -
deviation) * 100)`, where the deviation of two fractions is half their difference and a fraction is at most 1. The score
is `50 + (50 + with the pod - without it) // 2`: 75 if the pod changes nothing. Requests are the real ones, without
NodeResourcesFit's defaults; a pod that requests neither is not scored. Weight 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.decisions.plain.node_resources_fit import SCORED, allocatable
from tests.decisions.plain.requests import pod_request
from tests.decisions.plain.world import Obj, World, name


def score(pod: Obj, feasible: Sequence[Obj], world: World) -> dict[str, int] | None:
    if all(pod_request(pod, resource) == 0 for resource in SCORED):
        return None
    scores = {}
    for node in feasible:
        whole = [allocatable(node, resource) for resource in SCORED]
        without = [sum(pod_request(one, resource) for one in world.on(node)) for resource in SCORED]
        with_pod = [have + pod_request(pod, resource) for have, resource in zip(without, SCORED, strict=True)]
        scores[name(node)] = 50 + (50 + evenness(with_pod, whole) - evenness(without, whole)) // 2
    return scores


def evenness(taken: Sequence[int], whole: Sequence[int]) -> int:
    fractions = [min(used / have, 1.0) for used, have in zip(taken, whole, strict=True) if have]
    deviation = abs((fractions[0] - fractions[1]) / 2) if len(fractions) == 2 else 0.0
    return int((1 - deviation) * 100)
