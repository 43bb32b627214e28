"""The total requests of a pod (`PodRequests` of component-helpers; KEPs 688, 753 and 2837).

A pod needs the larger of two sums: that of its running containers and sidecars, and the maximum during its start, when
one init container runs at a time beside the sidecars that started before it. Requests of the pod as a whole replace
that result, and the overhead of its runtime class is added to either.

A missing request equals the limit, if there is one: the API server writes it so.

The resources that a running container or sidecar has, and those that its kubelet has allocated, count beside its spec:
the maximum of the three (KEP-1287). The same is true of the pod as a whole (KEP-5419). The spec does not count in a
resize that the node can never grant.
"""

from __future__ import annotations

from apimachinery.quantity import resource_value
from tests.decisions.plain.world import Obj

#: The assumed use of a container without a request of the resource, only for the score of NodeResourcesFit.
NON_ZERO = {"cpu": 100, "memory": 200 * 2**20}
#: Resources that may be requested for the pod as a whole; also hugepages, which no case has.
POD_LEVEL = ("cpu", "memory")


def _in_spec(container: Obj, resource: str) -> int | None:
    asked = container.get("resources") or {}
    for amounts in (asked.get("requests") or {}, asked.get("limits") or {}):
        if resource in amounts:
            return resource_value(resource, amounts[resource])
    return None


def _effective(asked: int | None, status: Obj | None, resource: str, infeasible: bool) -> int | None:
    """Return the maximum with actual and allocated resources of a container or a pod; None without any."""
    if status is None or status.get("resources") is None:
        return asked
    told = (status["resources"].get("requests") or {}, status.get("allocatedResources") or {})
    named = [resource_value(resource, amounts[resource]) for amounts in told if resource in amounts]
    if asked is not None and not infeasible:
        named.append(asked)
    return max(named) if named else None


def is_infeasible(pod: Obj) -> bool:
    told = [(each["type"], each.get("reason")) for each in (pod.get("status") or {}).get("conditions") or []]
    return ("PodResizePending", "Infeasible") in told


def whole_request(pod: Obj, resource: str) -> int | None:
    """Return the request of the pod as a whole; None if there is none."""
    asked = _in_spec(pod["spec"], resource) if resource in POD_LEVEL else None
    if asked is None:
        return None
    return _effective(asked, pod.get("status"), resource, is_infeasible(pod)) or 0


def _overhead(pod: Obj, resource: str) -> int:
    return resource_value(resource, (pod["spec"].get("overhead") or {}).get(resource, 0))


def _named(pod: Obj, resource: str) -> bool:
    """Return whether anything of the pod names the resource."""
    spec = pod["spec"]
    containers = [*spec["containers"], *(spec.get("initContainers") or [])]
    return (
        resource in (spec.get("overhead") or {})
        or whole_request(pod, resource) is not None
        or any(_container(pod, container, resource) is not None for container in containers)
    )


def _container(pod: Obj, container: Obj, resource: str) -> int | None:
    status = pod.get("status") or {}
    kinds = ("containerStatuses", "initContainerStatuses")
    statuses = {each["name"]: each for kind in kinds for each in status.get(kind) or ()}
    is_init = container in (pod["spec"].get("initContainers") or [])
    initial = is_init and container.get("restartPolicy") != "Always"
    told = None if initial else statuses.get(container["name"])
    return _effective(_in_spec(container, resource), told, resource, is_infeasible(pod))


def _of_containers(pod: Obj, resource: str, missing: int) -> int:
    spec = pod["spec"]

    def request(container: Obj) -> int:
        asked = _container(pod, container, resource)
        return missing if asked is None else asked

    running = sum(map(request, spec["containers"]))
    sidecars = highest = 0
    for container in spec.get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            sidecars += request(container)
            highest = max(highest, sidecars)
        else:
            highest = max(highest, sidecars + request(container))
    return max(running + sidecars, highest)


def containers_request(pod: Obj, resource: str) -> int:
    """Return the requests of the containers of `pod`, with a default for each that has none."""
    return _of_containers(pod, resource, NON_ZERO.get(resource, 0)) + _overhead(pod, resource)


def pod_request(pod: Obj, resource: str, *, non_zero: bool = False) -> int:
    """Return the request of `pod` for `resource`.

    With `non_zero`, a default replaces a container's missing request, unless there are requests of the pod as a whole
    and something names the resource.
    """
    whole = whole_request(pod, resource)
    if whole is not None:
        return whole + _overhead(pod, resource)
    has_whole = any(_in_spec(pod["spec"], each) is not None for each in POD_LEVEL)
    missing = NON_ZERO.get(resource, 0) if non_zero else 0
    if has_whole and _named(pod, resource):
        missing = 0
    return _of_containers(pod, resource, missing) + _overhead(pod, resource)


def requested_resources(pod: Obj) -> set[str]:
    """Return the resources that some part of `pod` names."""
    spec = pod["spec"]
    asking = [*spec["containers"], *(spec.get("initContainers") or []), spec]
    resources = [one.get("resources") or {} for one in asking]
    named = [each.get(part) or {} for each in resources for part in ("requests", "limits")]
    return {resource for amounts in (*named, spec.get("overhead") or {}) for resource in amounts}


def amounts(pod: Obj) -> dict[str, int]:
    """Return all requests of `pod`, with its place among the pods of a node; zeros are left out."""
    found = {resource: pod_request(pod, resource) for resource in requested_resources(pod)}
    return {resource: amount for resource, amount in found.items() if amount} | {"pods": 1}
