"""What a pod requests in all (`PodRequests` of component-helpers; KEPs 688, 753 and 2837).

A pod needs the larger of two sums: what its containers and sidecars need when they run, and the highest point of
its start, where one init container runs at a time beside the sidecars that started before it. Requests of the pod
as a whole take the place of that result, and the overhead of its runtime class is added to either.

A request that is missing while the limit is there equals the limit: the API server writes it so.
"""

from __future__ import annotations

from agent_scheduler.objects.quantity import resource_value
from tests.decisions.plain.world import Obj

#: What a container is taken to use of a resource that it does not request, by the score of NodeResourcesFit alone.
NON_ZERO = {"cpu": 100, "memory": 200 * 2**20}
#: What may be requested for the pod as a whole; hugepages too, which no case has.
POD_LEVEL = ("cpu", "memory")


def container_request(container: Obj, resource: str, missing: int = 0) -> int:
    asked = container.get("resources") or {}
    for amounts in (asked.get("requests") or {}, asked.get("limits") or {}):
        if resource in amounts:
            return resource_value(resource, amounts[resource])
    return missing


def pod_request(pod: Obj, resource: str, *, non_zero: bool = False) -> int:
    """What `pod` requests of `resource`; with `non_zero`, a default stands in for what a container leaves out."""
    spec = pod["spec"]
    overhead = resource_value(resource, (spec.get("overhead") or {}).get(resource, 0))
    whole = spec.get("resources") or {}
    if resource in POD_LEVEL and any(resource in (whole.get(part) or {}) for part in ("requests", "limits")):
        return container_request(spec, resource) + overhead

    missing = NON_ZERO.get(resource, 0) if non_zero else 0
    running = sum(container_request(container, resource, missing) for container in spec["containers"])
    sidecars = highest = 0
    for container in spec.get("initContainers") or []:
        request = container_request(container, resource, missing)
        if container.get("restartPolicy") == "Always":
            sidecars += request
        else:
            highest = max(highest, sidecars + request)
    return max(running + sidecars, highest) + overhead


def requested_resources(pod: Obj) -> set[str]:
    """The resources that some part of `pod` names."""
    spec = pod["spec"]
    asking = [*spec["containers"], *(spec.get("initContainers") or []), spec]
    named = [
        (one.get("resources") or {}).get(part) or {} for one in asking for part in ("requests", "limits")
    ]
    return {resource for amounts in (*named, spec.get("overhead") or {}) for resource in amounts}
