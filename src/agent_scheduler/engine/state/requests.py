"""How much a pod asks for.

The rule is that of Kubernetes' `PodRequests` (component-helpers, `resource/helpers.go`): the sum of all
containers and sidecars, or what the most demanding init step needs, whichever is more; pod-level requests
replace that for the resources they may name (KEP-2837); overhead comes on top (KEP-688).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from agent_scheduler.objects.wire import (
    Container,
    ContainerStatus,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Resources,
)
from apimachinery.quantity import QuantityError, resource_value

from .podspec import readable_part

_requirements = msgspec.json.Decoder(ResourceRequirements | None)
_resources = msgspec.json.Decoder(Resources | None)

#: No single amount in the ledger exceeds this, so that sums over a node's pods stay inside int64 for 2,000 pods
#: that all ask for as much, even bound to one node by a client that does not count. It is 4 PiB, or 4 billion
#: cores: an amount above it fits nowhere, and an allocatable is clamped to one less (see `NODE_LIMIT`), so
#: clamping never makes a pod fit that would not.
REQUEST_LIMIT = 2**52
NODE_LIMIT = REQUEST_LIMIT - 1

#: What a container without a request counts as when nodes are scored, so that a node full of pods without
#: requests does not look empty: 100 millicores, 200 MiB (kube-scheduler, `util/pod_resources.go`).
DEFAULTS: Final[Mapping[str, int]] = MappingProxyType({"cpu": 100, "memory": 200 * 1024 * 1024})

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
    # Zero is an amount, too: a container that asks for none gets no default.
    for resource, amount in floor.items():
        if amount > total.get(resource, -1):
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
    """Per container its requests and whether it is a sidecar; `problems` as in `amounts`.

    A container that is being resized takes the most of what its spec asks for, what the kubelet has set aside and
    what it has; its spec alone does not count where the node said that the resize is `infeasible`
    (`determineEffectiveRequests`). `sidecars_only`: what others have been given does not count.
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


def pod_level_amounts(
    spec: PodSpec, status: PodStatus, problems: list[str], *, infeasible: bool = False
) -> Amounts:
    """What is asked for the pod as a whole, of the resources that may be asked for so; `problems` as in `amounts`.

    Where the kubelet tells what the pod has, that and what it has set aside count as they do for a container; what
    it does not tell of then counts as none, unless the spec still does.
    """
    wanted = amounts(
        requested(spec.resources, "spec.resources", problems), "spec.resources.requests", problems
    )
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
    """What a pod asks for.

    `requests`: of each resource that anything of it names. `nonzero`: (millicores, bytes) that it counts as in scores
    once it runs. `by_containers`: what it counts as there before, where that is something else.
    """

    requests: Amounts
    nonzero: tuple[int, int]
    by_containers: Amounts | None


def pod_amounts(spec: PodSpec, status: PodStatus, infeasible: bool, problems: list[str]) -> PodAmounts:
    """`infeasible`: the node can never grant the resize that is asked for; `problems` as in `amounts`.

    By what a pod asks for as a whole kube-scheduler's NodeResourcesFit does not rank nodes for it: there the pod counts
    by its containers until it runs.
    """
    containers = container_amounts(
        spec.containers,
        "spec.containers",
        problems,
        statuses=status.container_statuses,
        infeasible=infeasible,
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
    # With requests of the pod as a whole a default is for what none of them names.
    missing = {each: amount for each, amount in DEFAULTS.items() if not pod_level or each not in requests}
    counted = total(missing, pod_level) if missing else requests
    nonzero = (counted.get("cpu", 0), counted.get("memory", 0))
    return PodAmounts(requests, nonzero, total(DEFAULTS, {}) if pod_level else None)


def with_defaults(
    containers: Sequence[tuple[Amounts, bool]], defaults: Mapping[str, int]
) -> Sequence[tuple[Amounts, bool]]:
    """As `container_amounts`, with what containers count as in scores: what they do not ask for filled in."""
    if all(defaults.keys() <= requests.keys() for requests, _ in containers):
        return containers
    return [({**defaults, **requests}, sidecar) for requests, sidecar in containers]
