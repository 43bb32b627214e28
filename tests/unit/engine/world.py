"""The builders of tests.support.engine under their former name, and rules read plainly."""

from __future__ import annotations

import re
from typing import Any

from agent_scheduler.objects.quantity import resource_value
from tests.support.engine import GPU, World, node, pod_json, read_pod, sums_are_right

__all__ = ["GPU", "World", "node", "pod_json", "read_pod", "sums_are_right"]

_IS_LABEL_VALUE = re.compile("(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?").fullmatch


def _tolerated(taint: dict[str, str], tolerations: list[dict[str, str]]) -> bool:
    for toleration in tolerations:
        if toleration.get("effect") and toleration["effect"] != taint["effect"]:
            continue
        if toleration.get("key") and toleration["key"] != taint["key"]:
            continue
        if toleration.get("operator", "Equal") == "Exists":
            return True
        if toleration.get("value", "") == taint.get("value", ""):
            return True
    return False


def _requirement(requirement: dict[str, Any], labels: dict[str, str]) -> bool:
    value = labels.get(requirement["key"])
    values = requirement.get("values", [])
    match requirement["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case operator:
            try:
                number = int(value or "")
            except ValueError:
                return False
            return number > int(values[0]) if operator == "Gt" else number < int(values[0])


def plain_term(term: dict[str, Any], node: dict[str, Any]) -> bool:
    expressions, fields = term.get("matchExpressions", []), term.get("matchFields", [])
    if not expressions and not fields:
        return False
    if not all(_IS_LABEL_VALUE(value) for each in expressions for value in each.get("values", [])):
        return False
    labels = node["metadata"].get("labels") or {}
    return all(_requirement(each, labels) for each in expressions) and all(
        _requirement(each, {"metadata.name": node["metadata"]["name"]}) for each in fields
    )


def _may_be_named(spec: dict[str, Any], name: str) -> bool:
    """Whether some required term names the node, or names none."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    fields = [
        [each["values"] for each in term.get("matchFields", []) if each["operator"] == "In"]
        for term in required["nodeSelectorTerms"]
    ]
    return any(all(name in values for values in each) for each in fields)


def plain_reasons(
    pod: dict[str, Any], node: dict[str, Any], placed: list[dict[str, Any]]
) -> tuple[str, list[str]]:
    """(plugin, reasons) of the first rule that refuses `node`, or ("", [])."""
    spec, tolerations = pod["spec"], pod["spec"].get("tolerations") or []
    if not _may_be_named(spec, node["metadata"]["name"]):
        return "NodeAffinity", ["node(s) didn't satisfy plugin(s) [NodeAffinity]"]
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if node["spec"].get("unschedulable") and not _tolerated(cordon, tolerations):
        return "NodeUnschedulable", ["node(s) were unschedulable"]
    for taint in node["spec"].get("taints") or []:
        if taint["effect"] != "PreferNoSchedule" and not _tolerated(taint, tolerations):
            return "TaintToleration", ["node(s) had untolerated taint(s)"]
    labels = node["metadata"].get("labels") or {}
    selector = spec.get("nodeSelector") or {}
    required = (
        spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    )
    if any(labels.get(key) != value for key, value in selector.items()) or (
        required is not None and not any(plain_term(term, node) for term in required["nodeSelectorTerms"])
    ):
        return "NodeAffinity", ["node(s) didn't match Pod's node affinity/selector"]
    for wanted in _ports(pod):
        for other in placed:
            for taken in _ports(other):
                addresses = {wanted[0], taken[0]}
                if wanted[1:] == taken[1:] and (len(addresses) == 1 or "0.0.0.0" in addresses):
                    return "NodePorts", ["node(s) didn't have free ports for the requested pod ports"]
    reasons = []
    allocatable = node["status"]["allocatable"]
    for resource, amount in plain_requests(pod).items():
        room = resource_value(resource, allocatable.get(resource, "0")) - sum(
            plain_requests(other).get(resource, 0) for other in placed
        )
        if amount > room:
            reasons.append("Too many pods" if resource == "pods" else f"Insufficient {resource}")
    if reasons:
        return "NodeResourcesFit", reasons
    amount = plain_requests(pod).get(GPU, 0)
    free = plain_gpus(node, placed)
    if sum(left >= min(amount, 1000) for left in free) < amount / 1000:
        return "GPUShare", ["node(s) didn't have a GPU with enough left"]
    return "", []


def plain_gpus(node: dict[str, Any], placed: list[dict[str, Any]]) -> list[int]:
    """What each GPU of a node has free beside pods with annotations that say where they are."""
    free = [1000] * (int(node["status"]["allocatable"].get(GPU, "0")) // 1000)
    for other in placed:
        amount = plain_requests(other).get(GPU, 0)
        said = other["metadata"].get("annotations", {}).get("agent-scheduler.io/gpu-index")
        for index in map(int, said.split(",")) if said and amount else ():
            if index < len(free):
                free[index] -= min(amount, 1000)
    return free


def _ports(pod: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [
        (port.get("hostIP", "0.0.0.0"), port.get("protocol", "TCP"), port["hostPort"])
        for container in pod["spec"]["containers"]
        for port in container.get("ports", [])
        if port.get("hostPort")
    ]


def plain_requests(pod: dict[str, Any]) -> dict[str, int]:
    """Amounts of a pod without sidecars, as the API's documentation defines them; zeros left out."""
    total: dict[str, int] = {}
    for container in pod["spec"]["containers"]:
        for resource, quantity in container.get("resources", {}).get("requests", {}).items():
            total[resource] = total.get(resource, 0) + resource_value(resource, quantity)
    for container in pod["spec"].get("initContainers", []):
        for resource, quantity in container.get("resources", {}).get("requests", {}).items():
            total[resource] = max(total.get(resource, 0), resource_value(resource, quantity))
    for resource, quantity in pod["spec"].get("overhead", {}).items():
        total[resource] = total.get(resource, 0) + resource_value(resource, quantity)
    return {resource: amount for resource, amount in total.items() if amount} | {"pods": 1}
