"""How much a pod asks for.

The rule is that of Kubernetes' `PodRequests` (component-helpers, `resource/helpers.go`): the sum of all
containers and sidecars, or what the most demanding init step needs, whichever is more; pod-level requests
replace that for the resources they may name (KEP-2837); overhead comes on top (KEP-688).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Raw

from agent_scheduler.objects.quantity import QuantityError, resource_value
from agent_scheduler.objects.wire import Container, ContainerStatus, ResourceRequirements, Resources

from .podspec import readable_part

_requirements = msgspec.json.Decoder(ResourceRequirements | None)
_resources = msgspec.json.Decoder(Resources | None)

#: No single amount in the ledger exceeds this, so that sums over a node's pods stay inside int64 for 2,000 pods
#: that all ask for as much, even bound to one node by somebody who does not count. It is 4 PiB, or 4 billion
#: cores: an amount above it fits nowhere, and an allocatable is clamped to one less (see `NODE_LIMIT`), so
#: clamping never makes a pod fit that would not.
REQUEST_LIMIT = 2**52
NODE_LIMIT = REQUEST_LIMIT - 1

#: What a container without a request counts as when nodes are scored, so that a node full of pods without
#: requests does not look empty: 100 millicores, 200 MiB (kube-scheduler, `util/pod_resources.go`).
DEFAULT_MILLI_CPU = 100
DEFAULT_MEMORY = 200 * 1024 * 1024

Amounts = dict[str, int]

#: Ways not to write a field.
_NOTHING = (Raw(), Raw(b"null"))


def amounts(resources: Resources | None, place: str, problems: list[str]) -> Amounts:
    """`{"cpu": "1", ...}` in the ledger's units.

    What cannot be read is left out and added to `problems` as `place[resource]: why`: the pod may run already, and
    what else it asks for is taken.
    """
    if not resources:
        return {}
    result = {}
    for resource, quantity in resources.items():
        try:
            amount = resource_value(resource, quantity)
        except QuantityError as error:
            problems.append(f"{place}[{resource}]: {error}")
            continue
        if amount < 0:
            problems.append(f"{place}[{resource}]: {quantity!r} is negative; a request must be 0 or more")
            continue
        result[resource] = min(amount, REQUEST_LIMIT)
    return result


def requested(raw: Raw, place: str, problems: list[str]) -> Resources | None:
    """What `resources` ask for, as it is written; `problems` as in `amounts`."""
    requirements: ResourceRequirements | None = readable_part(_requirements, raw, place, problems)
    return requirements.requests if requirements is not None else None


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for resource, amount in more.items():
        total[resource] = min(total.get(resource, 0) + amount, REQUEST_LIMIT)


def _raise_to(total: Amounts, floor: Mapping[str, int]) -> None:
    for resource, amount in floor.items():
        if amount > total.get(resource, 0):
            total[resource] = amount


def pod_level_resource(resource: str) -> bool:
    """Whether `spec.resources` may name it: the other resources belong to containers alone."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def pod_requests(
    containers: Iterable[Amounts],
    init_containers: Iterable[tuple[Amounts, bool]] = (),
    *,
    pod_level: Mapping[str, int] | None = None,
    overhead: Mapping[str, int] | None = None,
) -> Amounts:
    """Total of a pod; `init_containers` are (requests, whether it is a sidecar) in their order."""
    total: Amounts = {}
    for requests in containers:
        _add(total, requests)
    sidecars: Amounts = {}
    peak: Amounts = {}
    for requests, sidecar in init_containers:
        if sidecar:
            _add(total, requests)
            _add(sidecars, requests)
            step = sidecars
        else:
            step = dict(sidecars)
            _add(step, requests)
        _raise_to(peak, step)
    _raise_to(total, peak)
    for resource, amount in (pod_level or {}).items():
        if pod_level_resource(resource):
            total[resource] = amount
    _add(total, overhead or {})
    return total


def container_amounts(
    containers: Sequence[Container] | None,
    place: str,
    problems: list[str],
    *,
    statuses: Sequence[ContainerStatus] | None = None,
    infeasible: bool = False,
) -> list[tuple[Amounts, bool]]:
    """Per container its requests and whether it is a sidecar; `problems` as in `amounts`.

    A container that is being resized takes the most of what its spec asks for, what the kubelet has set aside and
    what it has; its spec alone does not count where the node said that the resize is `infeasible`
    (`determineContainerReqs`).
    """
    running = {status.name: status for status in statuses or () if status.resources not in _NOTHING}
    found = []
    for index, container in enumerate(containers or ()):
        at = f"{place}[{index}].resources"
        wanted = requested(container.resources, at, problems)
        requests = amounts(wanted, f"{at}.requests", problems)
        status = running.get(container.name)
        if status is not None:
            given = requested(status.resources, f"{container.name}: status.resources", problems)
            at = f"{container.name}: allocatedResources"
            allocated: Resources | None = readable_part(_resources, status.allocated_resources, at, problems)
            if given != wanted or (allocated and allocated != wanted):
                requests = {} if infeasible else requests
                _raise_to(requests, amounts(given, f"{container.name}: status.resources.requests", problems))
                _raise_to(requests, amounts(allocated, at, problems))
        found.append((requests, container.restart_policy == "Always"))
    return found


def with_defaults(requests: Amounts) -> Amounts:
    """The requests a container counts as in scores: missing CPU and memory filled in."""
    if not counts_by_default(requests):
        return requests
    return {"cpu": DEFAULT_MILLI_CPU, "memory": DEFAULT_MEMORY} | requests


def counts_by_default(requests: Amounts) -> bool:
    """Whether a container's score takes a default for CPU or memory."""
    return "cpu" not in requests or "memory" not in requests
