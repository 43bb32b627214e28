"""The builders of tests.support.engine under their former name, and rules read plainly."""

from __future__ import annotations

import re
from typing import Any

from agent_scheduler.objects.quantity import resource_value
from tests.support.engine import GPU, World, node, pod_json, read_pod, sums_are_right

__all__ = ["GPU", "World", "node", "pod_json", "read_pod", "sums_are_right"]

_IS_LABEL_VALUE = re.compile("(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?").fullmatch


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
