"""Computes the requests of a pod.

The rule is that of Kubernetes' `PodRequests` (component-helpers, `resource/helpers.go`): the sum of all containers and
sidecars or the maximum of the init steps, whichever is larger; pod-level requests replace this for the resources that
they name (KEP-2837); overhead is added (KEP-688).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from agent_scheduler.objects.wire import Container, ContainerStatus, PodSpec, PodStatus, ResourceRequirements
from apimachinery.quantity import QuantityError, resource_value
from apimachinery.wire import Resources

from .podspec import readable_part

_requirements = msgspec.json.Decoder(ResourceRequirements | None)
_resources = msgspec.json.Decoder(Resources | None)

#: The maximum of a single amount in the ledger. Sums over 2,000 such pods on one node, even if another client binds
#: them without checks, stay within int64. It is 4 PiB, or 4 billion cores: a larger amount fits nowhere, and an
#: allocatable is clamped to one less (see `NODE_LIMIT`), so clamping never makes a pod fit that would not.
REQUEST_LIMIT = 2**52
NODE_LIMIT = REQUEST_LIMIT - 1

#: The amounts of a container without requests in scores, so that a node full of such pods does not count as empty:
#: 100 millicores, 200 MiB (kube-scheduler, `util/pod_resources.go`).
DEFAULTS: Final[Mapping[str, int]] = MappingProxyType({"cpu": 100, "memory": 200 * 1024 * 1024})

Amounts = dict[str, int]

#: The forms of a missing field.
_NOTHING = (Raw(), Raw(b"null"))


def amounts(resources: Resources | None, place: str, problems: list[str]) -> Amounts:
    """Convert `{"cpu": "1", ...}` to the ledger's units.

    Invalid amounts are left out and added to `problems` as `place[resource]: reason`. The other amounts count, since
    the pod may already run.
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
    """Return the requests of a `resources` field as written; `problems` as in `amounts`."""
    requirements: ResourceRequirements | None = readable_part(_requirements, raw, place, problems)
    return requirements.requests if requirements is not None else None


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for resource, amount in more.items():
        total[resource] = min(total.get(resource, 0) + amount, REQUEST_LIMIT)


def _raise_to(total: Amounts, floor: Mapping[str, int]) -> None:
    # An explicit request of zero counts as an amount: such a container gets no default.
    for resource, amount in floor.items():
        if amount > total.get(resource, -1):
            total[resource] = amount


def pod_level_resource(resource: str) -> bool:
    """Return whether `spec.resources` may name the resource; all others are for containers only."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def pod_requests(
    containers: Iterable[Amounts],
    init_containers: Iterable[tuple[Amounts, bool]] = (),
    *,
    pod_level: Mapping[str, int] | None = None,
    overhead: Mapping[str, int] | None = None,
) -> Amounts:
    """Return the total of a pod; `init_containers` are (requests, whether it is a sidecar) in their order."""
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
    total |= pod_level or {}
    _add(total, overhead or {})
    return total


def container_amounts(
    containers: Sequence[Container] | None,
    place: str,
    problems: list[str],
    *,
    statuses: Sequence[ContainerStatus] | None = None,
    infeasible: bool = False,
    sidecars_only: bool = False,
) -> list[tuple[Amounts, bool]]:
    """Return for each container its requests and whether it is a sidecar; `problems` as in `amounts`.

    A container that is being resized counts with the maximum of its spec, its allocated and its actual resources; the
    spec is left out if the node reported the resize as `infeasible` (`determineEffectiveRequests`). With
    `sidecars_only`, allocated and actual resources count for sidecars only.
    """
    running = {status.name: status for status in statuses or () if status.resources not in _NOTHING}
    found = []
    for index, container in enumerate(containers or ()):
        at = f"{place}[{index}].resources"
        wanted = requested(container.resources, at, problems)
        requests = amounts(wanted, f"{at}.requests", problems)
        sidecar = container.restart_policy == "Always"
        status = running.get(container.name) if sidecar or not sidecars_only else None
        if status is not None:
            given = requested(status.resources, f"{container.name}: status.resources", problems)
            at = f"{container.name}: allocatedResources"
            allocated: Resources | None = readable_part(_resources, status.allocated_resources, at, problems)
            if given != wanted or (allocated and allocated != wanted):
                requests = {} if infeasible else requests
                _raise_to(requests, amounts(given, f"{container.name}: status.resources.requests", problems))
                _raise_to(requests, amounts(allocated, at, problems))
        found.append((requests, sidecar))
    return found


def pod_level_amounts(spec: PodSpec, status: PodStatus, problems: list[str], *, infeasible: bool = False) -> Amounts:
    """Return the pod-level requests, of the resources that pod level supports; `problems` as in `amounts`.

    If the kubelet reports the pod's actual and allocated resources, these count as they do for a container. With an
    infeasible resize, resources that it does not report count as zero.
    """
    wanted = amounts(requested(spec.resources, "spec.resources", problems), "spec.resources.requests", problems)
    wanted = {resource: amount for resource, amount in wanted.items() if pod_level_resource(resource)}
    if not wanted or status.resources in _NOTHING:
        return wanted
    effective = dict.fromkeys(wanted, 0) if infeasible else dict(wanted)
    given = requested(status.resources, "status.resources", problems)
    allocated: Resources | None = readable_part(
        _resources, status.allocated_resources, "status.allocatedResources", problems
    )
    _raise_to(effective, amounts(given, "status.resources.requests", problems))
    _raise_to(effective, amounts(allocated, "status.allocatedResources", problems))
    return {resource: effective[resource] for resource in wanted}


class PodAmounts(NamedTuple):
    """The amounts of a pod.

    `requests` has each resource that the spec names, `nonzero` the (millicores, bytes) of the pod in scores once it
    runs, `by_containers` its amounts in scores before that, if they differ.
    """

    requests: Amounts
    nonzero: tuple[int, int]
    by_containers: Amounts | None


def pod_amounts(spec: PodSpec, status: PodStatus, infeasible: bool, problems: list[str]) -> PodAmounts:
    """Return the amounts of a pod; `problems` as in `amounts`.

    `infeasible` is whether the node can never grant the requested resize. kube-scheduler's NodeResourcesFit ignores
    pod-level requests when it scores nodes for a pod: until the pod runs, it counts by its containers.
    """
    containers = container_amounts(
        spec.containers, "spec.containers", problems, statuses=status.container_statuses, infeasible=infeasible
    )
    inits = container_amounts(
        spec.init_containers,
        "spec.initContainers",
        problems,
        statuses=status.init_container_statuses,
        infeasible=infeasible,
        sidecars_only=True,
    )
    pod_level = pod_level_amounts(spec, status, problems, infeasible=infeasible)
    wanted = readable_part(_resources, spec.overhead, "spec.overhead", problems)
    overhead = amounts(wanted, "spec.overhead", problems)

    def total(defaults: Mapping[str, int], whole: Amounts) -> Amounts:
        running, starting = with_defaults(containers, defaults), with_defaults(inits, defaults)
        return pod_requests((each for each, _ in running), starting, pod_level=whole, overhead=overhead)

    requests = total({}, pod_level)
    # If there are pod-level requests, the defaults apply only to resources that no request names.
    missing = {each: amount for each, amount in DEFAULTS.items() if not pod_level or each not in requests}
    counted = total(missing, pod_level) if missing else requests
    nonzero = (counted.get("cpu", 0), counted.get("memory", 0))
    return PodAmounts(requests, nonzero, total(DEFAULTS, {}) if pod_level else None)


def with_defaults(
    containers: Sequence[tuple[Amounts, bool]], defaults: Mapping[str, int]
) -> Sequence[tuple[Amounts, bool]]:
    """Return the result of `container_amounts` with the defaults for resources that containers do not request."""
    if all(defaults.keys() <= requests.keys() for requests, _ in containers):
        return containers
    return [({**defaults, **requests}, sidecar) for requests, sidecar in containers]
