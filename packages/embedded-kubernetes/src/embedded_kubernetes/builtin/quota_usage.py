"""The amounts that objects use of a ResourceQuota (pkg/quota/v1/evaluator/core). Pure.

Amounts are in thousandths of a unit. Pods that have ended count only in `count/pods`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from apimachinery.quantity import milli_value

from ..quantities import canonical_quantity
from ..resource import Object
from .pod_resources import add, peak_requests, qos_class

Name = tuple[str, str]
Amounts = dict[str, int]

PODS: Name = ("", "pods")
_CLAIMS: Name = ("", "persistentvolumeclaims")
_SERVICES: Name = ("", "services")
_DEVICES: Name = ("resource.k8s.io", "resourceclaims")
_CLASS_SUFFIX = ".storageclass.storage.k8s.io/"
_DEVICE_SUFFIX = ".deviceclass.resource.k8s.io/devices"
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
#: Resources that each container must request, or limit, if a quota counts them.
_EXPLICIT = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
#: Kinds that also count under their plural.
_BY_PLURAL = frozenset({"configmaps", "secrets", "services", "replicationcontrollers", "resourcequotas"}) | {
    "persistentvolumeclaims"
}
_FINAL = ("Succeeded", "Failed")
#: The number of devices of a request for all devices, which is the most that a claim can have.
_ALL_DEVICES = 32
#: Amounts that are printed with binary suffixes.
_BYTES = ("memory", "storage")


def kind_of(resource: str) -> Name:
    """Return group and plural of the kind whose objects use a resource of a quota."""
    if resource.startswith("count/"):
        plural, _, group = resource.removeprefix("count/").partition(".")
        return group, plural
    if resource == "requests.storage" or _CLASS_SUFFIX in resource:
        return _CLAIMS
    if resource.endswith(_DEVICE_SUFFIX):
        return _DEVICES
    plural = resource.partition(".")[0]
    return ("", plural) if plural in _BY_PLURAL else PODS


def usage(name: Name, obj: Object) -> Amounts:
    """Return the amounts that an object of a kind uses, by resource."""
    group, plural = name
    used = {f"count/{plural}.{group}" if group else f"count/{plural}": 1000}
    if not group and plural in _BY_PLURAL:
        used[plural] = 1000
    more = _USAGE.get(name)
    if more is not None:
        used |= more(obj)
    return used


def _pod(pod: Object) -> Amounts:
    if (pod.get("status") or {}).get("phase") in _FINAL:
        return {}
    spec = pod["spec"]
    requests, limits = amounts(spec, "requests"), amounts(spec, "limits")
    used = {"pods": 1000}
    for name, amount in requests.items():
        if name in _COMPUTE or name.startswith("hugepages-"):
            used[name] = amount
        used[f"requests.{name}"] = amount
    used |= {f"limits.{name}": amount for name, amount in limits.items() if name in _COMPUTE}
    return used


def amounts(spec: Object, kind: str) -> Amounts:
    """Return the `requests` or `limits` of a pod: those of the containers at their peak, and the overhead."""
    chosen = {
        group: [
            {**each, "resources": {"requests": (each.get("resources") or {}).get(kind) or {}}}
            for each in spec.get(group) or ()
        ]
        for group in ("containers", "initContainers")
    }
    total = peak_requests(chosen, lambda _, quantity: milli_value(quantity))
    own = (spec.get("resources") or {}).get(kind) or {}
    total |= {name: milli_value(amount) for name, amount in own.items()}
    add(total, {name: milli_value(amount) for name, amount in (spec.get("overhead") or {}).items()})
    return total


def _claim(claim: Object) -> Amounts:
    spec = claim["spec"]
    size = milli_value(((spec.get("resources") or {}).get("requests") or {}).get("storage", "0"))
    used = {"requests.storage": size}
    if of := spec.get("storageClassName"):
        used |= {f"{of}{_CLASS_SUFFIX}requests.storage": size, f"{of}{_CLASS_SUFFIX}persistentvolumeclaims": 1000}
    return used


def _service(service: Object) -> Amounts:
    spec = service["spec"]
    kind, ports = spec.get("type"), len(spec.get("ports") or ())
    balances = kind == "LoadBalancer"
    has_ports = kind == "NodePort" or (balances and spec.get("allocateLoadBalancerNodePorts", True))
    return {"services.loadbalancers": 1000 * balances, "services.nodeports": 1000 * ports if has_ports else 0}


def _devices(claim: Object) -> Amounts:
    used: Amounts = {}
    for request in (claim["spec"].get("devices") or {}).get("requests") or ():
        if exactly := request.get("exactly"):
            count = _ALL_DEVICES if exactly.get("allocationMode") == "All" else exactly.get("count") or 1
            add(used, {f"{exactly['deviceClassName']}{_DEVICE_SUFFIX}": 1000 * count})
    return used


_USAGE: dict[Name, Callable[[Object], Amounts]] = {PODS: _pod, _CLAIMS: _claim, _SERVICES: _service, _DEVICES: _devices}


def counts(quota: Object, name: Name, obj: Object) -> Amounts:
    """Return what an object uses of a quota; empty if its scopes exclude the object."""
    spec = quota.get("spec") or {}
    hard = spec.get("hard") or {}
    if not all(_in_scope(each, name, obj) for each in _scopes(spec)):
        return {}
    return {resource: amount for resource, amount in usage(name, obj).items() if resource in hard}


def _scopes(spec: Object) -> list[Object]:
    plain = [{"scopeName": each, "operator": "Exists"} for each in spec.get("scopes") or ()]
    return [*plain, *((spec.get("scopeSelector") or {}).get("matchExpressions") or ())]


def _in_scope(scope: Object, name: Name, obj: Object) -> bool:
    if name != PODS:
        return False
    spec, kind = obj["spec"], scope["scopeName"]
    if kind == "PriorityClass":
        found, values = spec.get("priorityClassName") or "", scope.get("values") or ()
        tests = {"Exists": bool(found), "DoesNotExist": not found, "In": found in values, "NotIn": found not in values}
        return tests[scope["operator"]]
    limited, best_effort = spec.get("activeDeadlineSeconds") is not None, qos_class(spec) == "BestEffort"
    return {
        "Terminating": limited,
        "NotTerminating": not limited,
        "BestEffort": best_effort,
        "NotBestEffort": not best_effort,
        "CrossNamespacePodAffinity": _is_across_namespaces(spec),
    }.get(kind, False)


def _is_across_namespaces(spec: Object) -> bool:
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = (spec.get("affinity") or {}).get(kind) or {}
        required = rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        preferred = rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        for term in (*required, *(each["podAffinityTerm"] for each in preferred)):
            if term.get("namespaces") or term.get("namespaceSelector") is not None:
                return True
    return False


def unspecified(quota: Object, pod: Object) -> str:
    """Return which containers lack requests or limits that the quota counts, in kube-apiserver's words."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    missing = []
    spec = pod["spec"]
    for resource in sorted(set(_EXPLICIT) & hard.keys()):
        kind, _, name = resource.rpartition(".")
        field = kind or "requests"
        if name in ((spec.get("resources") or {}).get(field) or {}):
            continue
        lacking = [
            each["name"]
            for group in ("containers", "initContainers")
            for each in spec.get(group) or ()
            if name not in ((each.get("resources") or {}).get(field) or {})
        ]
        if lacking:
            missing.append(f"{resource} for: {','.join(sorted(lacking))}")
    return "; ".join(missing)


def text_of(resource: str, milli: int) -> str:
    """Return an amount as a quantity."""
    whole, rest = divmod(milli, 1000)
    if rest:
        return f"{milli}m"
    if resource.endswith(_BYTES) and whole and whole % 1024 == 0:
        return canonical_quantity(f"{whole // 1024}Ki")
    return str(whole)


def pretty(quantities: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return `name=quantity` for each of the names, sorted, as in messages about quotas."""
    return ",".join(f"{name}={quantities.get(name, '0')}" for name in sorted(names))
