"""NodeResourcesFit: the pod's requests must be free, and emptier nodes are better (LeastAllocated).

From `plugins/noderesources/fit.go` and `least_allocated.go`. Every insufficient resource is a reason of its own.
Evictions do not help a pod that asks for more than the node's allocatable.

The score counts a container without requests of CPU or memory as 100m and 200Mi (`NON_ZERO`), also in placed pods; the
filter does not. For the pod that is to be placed it counts only the containers, whatever is requested for the pod as a
whole. CPU and memory each give `(allocatable - requested) * 100 // allocatable`, 0 if that is negative; their mean,
rounded down, is the score. Weight 1, without normalization.
"""

from __future__ import annotations

from collections.abc import Sequence

from apimachinery.quantity import resource_value
from tests.decisions.plain.requests import containers_request, pod_request, requested_resources
from tests.decisions.plain.world import Obj, Refusal, World, name

SCORED = ("cpu", "memory")


def allocatable(node: Obj, resource: str) -> int:
    return resource_value(resource, node["status"]["allocatable"].get(resource, 0))


def refuse(pod: Obj, node: Obj, world: World) -> Refusal | None:
    reasons, unresolvable = [], False
    placed = world.on(node)
    if len(placed) + 1 > allocatable(node, "pods"):
        reasons.append("Too many pods")
    for resource in sorted(requested_resources(pod)):
        wanted, whole = pod_request(pod, resource), allocatable(node, resource)
        taken = sum(pod_request(one, resource) for one in placed)
        if wanted > 0 and wanted > whole - taken:
            reasons.append(f"Insufficient {resource}")
            unresolvable |= wanted > whole
    return Refusal(tuple(reasons), unresolvable) if reasons else None


def score(pod: Obj, feasible: Sequence[Obj], world: World) -> dict[str, int] | None:
    scores = {}
    for node in feasible:
        taken = [
            sum(pod_request(one, resource, non_zero=True) for one in world.on(node)) + containers_request(pod, resource)
            for resource in SCORED
        ]
        scores[name(node)] = least_allocated(taken, [allocatable(node, resource) for resource in SCORED])
    return scores


def least_allocated(taken: Sequence[int], whole: Sequence[int]) -> int:
    shares = [max(have - used, 0) * 100 // have for used, have in zip(taken, whole, strict=True) if have]
    return sum(shares) // len(shares) if shares else 0
