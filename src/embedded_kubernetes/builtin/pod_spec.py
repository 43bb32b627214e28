"""Checks of a pod spec, in a pod or in a template. The order is a real server's, so causes come in its order."""

from __future__ import annotations

from typing import Any

from agent_scheduler.objects.quantity import milli_value

from ..errors import Cause
from . import names
from .amounts import check_requirements
from .causes import (
    check_one_of,
    check_range,
    duplicate,
    forbidden,
    invalid,
    required,
    unsupported,
)
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
from .security import check_pod_security
from .volumes import check_volumes

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
#: The fields that every pod has after defaulting; one with no other needs only the checks of these.
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


def check_pod_spec(spec: dict[str, Any], path: str, *, is_pod: bool) -> list[Cause]:
    """`is_pod`: the spec is of a pod, not of a template; a pod's is checked a little more strictly."""
    causes: list[Cause] = []
    volumes: dict[str, dict[str, Any]] = {}
    if "volumes" in spec:
        volumes, causes = check_volumes(spec["volumes"] or [], f"{path}.volumes")
    if "resourceClaims" in spec:
        causes += _check_claims(spec["resourceClaims"] or [], f"{path}.resourceClaims")
    parts = PodParts(spec, volumes, is_pod=is_pod)
    containers = spec.get("containers") or []
    causes += check_containers(containers, f"{path}.containers", parts)
    if "initContainers" in spec:
        first = spec["initContainers"] or []
        causes += check_init_containers(first, containers, f"{path}.initContainers", parts)
    if "ephemeralContainers" in spec:
        others = [*containers, *(spec.get("initContainers") or ())]
        added = spec["ephemeralContainers"] or []
        causes += check_ephemeral_containers(added, others, f"{path}.ephemeralContainers", parts)
    plain = spec.keys() <= _PLAIN and spec.get("dnsPolicy") != "None"
    if not plain:
        if resources := spec.get("resources"):
            causes += _check_pod_resources(spec, resources, f"{path}.resources")
        if spec.get("hostNetwork"):
            causes += _check_host_network(spec, path, is_pod=is_pod)
    if spec.get("restartPolicy") not in _RESTART_POLICIES:
        causes += check_one_of(f"{path}.restartPolicy", spec.get("restartPolicy"), _RESTART_POLICIES)
    if spec.get("dnsPolicy") not in _DNS_POLICIES:
        causes += check_one_of(f"{path}.dnsPolicy", spec.get("dnsPolicy"), _DNS_POLICIES)
    if not plain and (selector := spec.get("nodeSelector")):
        causes += check_labels(selector, f"{path}.nodeSelector")
    if context := spec.get("securityContext"):
        causes += check_pod_security(context, f"{path}.securityContext", spec)
    if not plain:
        causes += _check_placement(spec, path) + _check_names(spec, path)
    if tolerations := spec.get("tolerations"):
        causes += check_tolerations(tolerations, f"{path}.tolerations")
    if not plain:
        causes += _check_aliases_and_classes(spec, path)
    if (policy := spec.get("preemptionPolicy")) is not None and policy not in _PREEMPTION_POLICIES:
        causes += check_one_of(f"{path}.preemptionPolicy", policy, _PREEMPTION_POLICIES)
    if not plain:
        causes += _check_overhead_and_system(spec, path)
        if is_pod and not spec.get("serviceAccountName"):
            causes += _check_tokens(spec.get("volumes") or [], f"{path}.volumes")
    if is_pod:
        causes += check_image_spaces(containers, f"{path}.containers")
        if "initContainers" in spec:
            causes += check_image_spaces(spec["initContainers"] or [], f"{path}.initContainers")
    return causes


def _check_placement(spec: dict[str, Any], path: str) -> list[Cause]:
    """Where the pod may run and how it finds others."""
    causes: list[Cause] = []
    if affinity := spec.get("affinity"):
        causes += check_affinity(affinity, f"{path}.affinity")
    dns, nowhere = spec.get("dnsConfig"), spec.get("dnsPolicy") == "None"
    if nowhere and dns is None:
        detail = "must provide `dnsConfig` when `dnsPolicy` is None"
        causes.append(required(f"{path}.dnsConfig", detail))
    elif nowhere and dns is not None and not dns.get("nameservers"):
        detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        causes.append(required(f"{path}.dnsConfig.nameservers", detail))
    elif dns:
        causes += _check_dns(dns, f"{path}.dnsConfig")
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        kind, at = gate.get("conditionType", ""), f"{path}.readinessGates[{index}].conditionType"
        causes += [invalid(at, kind, problem) for problem in names.qualified(kind)]
    if gates := spec.get("schedulingGates"):
        causes += check_gates(gates, f"{path}.schedulingGates")
    if constraints := spec.get("topologySpreadConstraints"):
        causes += check_spread(constraints, f"{path}.topologySpreadConstraints")
    if spec.get("hostUsers") is False:
        # Two of these paths name the Go fields; so do a real server's.
        detail = "when `hostUsers` is false"
        causes += [
            forbidden(f"{path}.{shown}", detail)
            for field, shown in (
                ("hostNetwork", "hostNetwork"),
                ("hostPID", "HostPID"),
                ("hostIPC", "HostIPC"),
            )
            if spec.get(field)
        ]
    return causes


def _check_names(spec: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for field in ("serviceAccountName", "nodeName"):
        if name := spec.get(field):
            causes += [invalid(f"{path}.{field}", name, problem) for problem in names.subdomain(name)]
    if (deadline := spec.get("activeDeadlineSeconds")) is not None:
        causes += check_range(f"{path}.activeDeadlineSeconds", deadline, low=1, high=2**31 - 1)
    for field in ("hostname", "subdomain"):
        if name := spec.get(field):
            causes += [invalid(f"{path}.{field}", name, problem) for problem in names.label(name)]
    return causes


def _check_aliases_and_classes(spec: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        at, ip = f"{path}.hostAliases[{index}]", alias.get("ip", "")
        causes += [invalid(f"{at}.ip", ip, problem) for problem in names.ip(ip)]
        for place, name in enumerate(alias.get("hostnames") or ()):
            here = f"{at}.hostnames[{place}]"
            causes += [invalid(here, name, problem) for problem in names.subdomain(name)]
    for field in ("priorityClassName", "runtimeClassName"):
        if name := spec.get(field):
            causes += [invalid(f"{path}.{field}", name, problem) for problem in names.subdomain(name)]
    return causes


def _check_overhead_and_system(spec: dict[str, Any], path: str) -> list[Cause]:
    causes = check_requirements({"limits": spec.get("overhead")}, f"{path}.overhead")
    if (system := spec.get("os")) is not None:
        name = system.get("name")
        if not name:
            causes.append(required(f"{path}.os.name", "cannot be empty"))
        elif name not in ("linux", "windows"):
            causes.append(unsupported(f"{path}.os", name, ("linux", "windows")))
    return causes


def _check_claims(claims: list[dict[str, Any]], path: str) -> list[Cause]:
    """A pod's resource claims: a name each, and either a claim or a template (KEP-4381)."""
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        at, name = f"{path}[{index}]", claim.get("name", "")
        if not name:
            causes.append(required(f"{at}.name"))
        elif name in seen:
            causes.append(duplicate(f"{at}.name", name))
        else:
            causes += [invalid(f"{at}.name", name, problem) for problem in names.label(name)]
        seen.add(name)
        given = [
            field
            for field in ("resourceClaimName", "resourceClaimTemplateName")
            if claim.get(field) is not None
        ]
        if len(given) > 1:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            causes.append(invalid(at, claim, detail))
        if not given:
            detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            causes.append(invalid(at, claim, detail))
        for field in given:
            causes += [
                invalid(f"{at}.{field}", claim[field], problem) for problem in names.subdomain(claim[field])
            ]
    return causes


def _check_pod_resources(spec: dict[str, Any], resources: dict[str, Any], path: str) -> list[Cause]:
    """Pod-level resources are at least what the containers ask for together (KEP-2837)."""
    causes: list[Cause] = []
    if resources.get("claims"):
        causes.append(forbidden(f"{path}.claims", "claims cannot be set for Resources at pod-level"))
    amounts = {key: value for key, value in resources.items() if key != "claims"}
    causes += check_requirements(amounts, path)
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, together in container_requests(spec).items():
        given = requests.get(name, "0")
        if name in ("cpu", "memory") and milli_value(together) > milli_value(given):
            detail = f"must be greater than or equal to aggregate container requests of {together}"
            causes.append(invalid(f"{path}.requests[{name}]", given, detail))
    for index, container in enumerate(spec.get("containers") or ()):
        for name, limit in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and milli_value(limit) > milli_value(limits[name]):
                detail = f"must be less than or equal to pod limits of {limits[name]}"
                causes.append(invalid(f"{path}.containers[{index}][{name}].limits", limit, detail))
    return causes


def _check_host_network(spec: dict[str, Any], path: str, *, is_pod: bool) -> list[Cause]:
    causes: list[Cause] = []
    for index, container in enumerate(spec.get("containers") or ()):
        for place, port in enumerate(container.get("ports") or ()):
            host = port.get("hostPort", 0)
            if (is_pod or host) and host != port.get("containerPort"):
                at = f"{path}.containers[{index}].ports[{place}].hostPort"
                detail = "must match `containerPort` when `hostNetwork` is true"
                causes.append(invalid(at, host, detail))
    return causes


def _check_dns(dns: dict[str, Any], path: str) -> list[Cause]:
    causes = check_part("dnsConfig", dns, path)
    if len(" ".join(dns.get("searches") or ())) > 2048:
        detail = "must not have more than 2048 characters (including spaces) in the search list"
        causes.append(invalid(f"{path}.searches", dns["searches"], detail))
    return causes


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
