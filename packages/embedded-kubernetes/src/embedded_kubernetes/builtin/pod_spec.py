"""Validation of a pod spec, in a pod or in a template. Errors have the order of kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apimachinery.quantity import milli_value

from ..errors import Cause
from .amounts import check_requirements
from .causes import check_one_of, forbidden, invalid, required, unsupported
from .containers import (
    PodParts,
    check_containers,
    check_ephemeral_containers,
    check_image_spaces,
    check_init_containers,
)
from .metadata import check_labels
from .placement import check_affinity, check_gates, check_spread, check_tolerations
from .pod_resources import container_requests
from .rules import check_part
from .volumes import check_volumes

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
#: Fields of every defaulted pod. A spec with no others skips the remaining checks.
_PLAIN = frozenset(
    {
        "containers",
        "restartPolicy",
        "terminationGracePeriodSeconds",
        "dnsPolicy",
        "securityContext",
        "schedulerName",
        "tolerations",
        "priority",
        "enableServiceLinks",
        "preemptionPolicy",
    }
)


def check_pod_spec(spec: dict[str, Any], path: str, *, is_pod: bool) -> Iterator[Cause]:
    """Check a pod spec. `is_pod` is false for a template, for which fewer checks apply."""
    listed = spec.get("volumes") or []
    if listed:
        yield from check_volumes(listed, f"{path}.volumes")
    volumes = {volume.get("name", ""): volume for volume in listed}
    if "resourceClaims" in spec:
        yield from check_part("podClaims", spec, path)
    parts = PodParts(spec, volumes, is_pod=is_pod)
    containers = spec.get("containers") or []
    yield from check_containers(containers, f"{path}.containers", parts)
    if "initContainers" in spec:
        first = spec["initContainers"] or []
        yield from check_init_containers(first, containers, f"{path}.initContainers", parts)
    if "ephemeralContainers" in spec:
        others = [*containers, *(spec.get("initContainers") or ())]
        added = spec["ephemeralContainers"] or []
        yield from check_ephemeral_containers(added, others, f"{path}.ephemeralContainers", parts)
    plain = spec.keys() <= _PLAIN and spec.get("dnsPolicy") != "None"
    if not plain:
        if resources := spec.get("resources"):
            yield from _check_pod_resources(spec, resources, f"{path}.resources")
        if spec.get("hostNetwork"):
            yield from _check_host_network(spec, path, is_pod=is_pod)
    if spec.get("restartPolicy") not in _RESTART_POLICIES:
        yield from check_one_of(f"{path}.restartPolicy", spec.get("restartPolicy"), _RESTART_POLICIES)
    if spec.get("dnsPolicy") not in _DNS_POLICIES:
        yield from check_one_of(f"{path}.dnsPolicy", spec.get("dnsPolicy"), _DNS_POLICIES)
    if not plain and (selector := spec.get("nodeSelector")):
        yield from check_labels(selector, f"{path}.nodeSelector")
    context = spec.get("securityContext") or {}
    if context or spec.get("shareProcessNamespace"):
        yield from _check_security(context, f"{path}.securityContext", spec)
    if not plain:
        yield from _check_placement(spec, path)
        yield from check_part("podNames", spec, path)
    if tolerations := spec.get("tolerations"):
        yield from check_tolerations(tolerations, f"{path}.tolerations")
    if not plain:
        yield from check_part("podAliases", spec, path)
    if (policy := spec.get("preemptionPolicy")) is not None and policy not in _PREEMPTION_POLICIES:
        yield from check_one_of(f"{path}.preemptionPolicy", policy, _PREEMPTION_POLICIES)
    if not plain:
        yield from _check_overhead_and_system(spec, path)
        if is_pod and not spec.get("serviceAccountName"):
            yield from _check_tokens(listed, f"{path}.volumes")
    if is_pod:
        yield from check_image_spaces(containers, f"{path}.containers")
        if "initContainers" in spec:
            yield from check_image_spaces(spec["initContainers"] or [], f"{path}.initContainers")


def _check_placement(spec: dict[str, Any], path: str) -> Iterator[Cause]:
    """Check where the pod may run and its network settings."""
    if affinity := spec.get("affinity"):
        yield from check_affinity(affinity, f"{path}.affinity")
    yield from check_part("podReach", spec, path)
    if gates := spec.get("schedulingGates"):
        yield from check_gates(gates, f"{path}.schedulingGates")
    if constraints := spec.get("topologySpreadConstraints"):
        yield from check_spread(constraints, f"{path}.topologySpreadConstraints")
    if spec.get("hostUsers") is False:
        # As in kube-apiserver, two of these paths contain names of Go fields.
        detail = "when `hostUsers` is false"
        yield from (
            forbidden(f"{path}.{shown}", detail)
            for field, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC"))
            if spec.get(field)
        )


def _check_overhead_and_system(spec: dict[str, Any], path: str) -> Iterator[Cause]:
    yield from check_requirements({"limits": spec.get("overhead")}, f"{path}.overhead")
    if (system := spec.get("os")) is not None:
        name = system.get("name")
        if not name:
            yield required(f"{path}.os.name", "cannot be empty")
        elif name not in ("linux", "windows"):
            yield unsupported(f"{path}.os", name, ("linux", "windows"))


def _check_pod_resources(spec: dict[str, Any], resources: dict[str, Any], path: str) -> Iterator[Cause]:
    """Check that pod-level resources are at least the total of the containers (KEP-2837)."""
    if resources.get("claims"):
        yield forbidden(f"{path}.claims", "claims cannot be set for Resources at pod-level")
    amounts = {key: value for key, value in resources.items() if key != "claims"}
    yield from check_requirements(amounts, path)
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, together in container_requests(spec).items():
        given = requests.get(name, "0")
        if name in ("cpu", "memory") and milli_value(together) > milli_value(given):
            detail = f"must be greater than or equal to aggregate container requests of {together}"
            yield invalid(f"{path}.requests[{name}]", given, detail)
    for index, container in enumerate(spec.get("containers") or ()):
        for name, limit in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and milli_value(limit) > milli_value(limits[name]):
                detail = f"must be less than or equal to pod limits of {limits[name]}"
                yield invalid(f"{path}.containers[{index}][{name}].limits", limit, detail)


def _check_host_network(spec: dict[str, Any], path: str, *, is_pod: bool) -> Iterator[Cause]:
    for index, container in enumerate(spec.get("containers") or ()):
        for place, port in enumerate(container.get("ports") or ()):
            host = port.get("hostPort", 0)
            if (is_pod or host) and host != port.get("containerPort"):
                at = f"{path}.containers[{index}].ports[{place}].hostPort"
                yield invalid(at, host, "must match `containerPort` when `hostNetwork` is true")


def _check_tokens(volumes: list[dict[str, Any]], path: str) -> list[Cause]:
    return [
        forbidden(
            f"{path}[{index}].projected.sources[{place}].serviceAccountToken",
            "must not be specified when serviceAccountName is not set",
        )
        for index, volume in enumerate(volumes)
        for place, source in enumerate((volume.get("projected") or {}).get("sources") or ())
        if source.get("serviceAccountToken") is not None
    ]


def _check_security(context: dict[str, Any], path: str, spec: dict[str, Any]) -> Iterator[Cause]:
    """Check a pod's `securityContext` and its host namespaces."""
    yield from check_part("podIds", context, path)
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(f"{path}.shareProcessNamespace", True, detail)
    yield from check_part("podSecurity", context, path)
