"""Checks of resource lists: which names may stand where, amounts that are not negative, requests within limits."""

from __future__ import annotations

from typing import Any

from agent_scheduler.objects.quantity import milli_value

from ..errors import Cause
from . import names
from .causes import duplicate, forbidden, invalid, not_found, required

_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
_HUGE = "hugepages-"
_INTEGER = frozenset(
    {"pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps"}
    | {"persistentvolumeclaims", "services.nodeports", "services.loadbalancers"}
)
#: Names without a domain that mean something, if not in a container.
_KNOWN = _STANDARD | _INTEGER | {"storage", "requests.storage"}
_KNOWN |= {f"{kind}.{name}" for kind in ("requests", "limits") for name in _STANDARD}


def is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    """A countable resource of a device plugin or the like, `example.com/gpu`."""
    return not is_native(name) and not name.startswith("requests.")


def can_overcommit(name: str) -> bool:
    return is_native(name) and not name.startswith(_HUGE)


def check_amount(name: str, amount: object, path: str) -> list[Cause]:
    """Not negative, and whole where the resource is counted in pieces. The amount is a canonical quantity by then."""
    if type(amount) is not str:
        return []
    causes = [invalid(path, amount, "must be greater than or equal to 0")] if amount.startswith("-") else []
    if name not in _STANDARD and (name in _INTEGER or is_extended(name)) and milli_value(amount) % 1000:
        causes.append(invalid(path, amount, "must be an integer"))
    return causes


def check_resource_name(name: str, path: str) -> list[Cause]:
    """A name that a quota, a limit range or a container can count."""
    if problems := names.qualified(name):
        return [invalid(path, name, problem) for problem in problems]
    if "/" in name or name in _KNOWN or name.startswith((_HUGE, f"requests.{_HUGE}")):
        return []
    return [invalid(path, name, "must be a standard resource type or fully qualified")]


def check_quota_name(name: str, path: str) -> list[Cause]:
    causes = check_resource_name(name, path)
    known = name in _KNOWN and name != "storage"
    if "/" not in name and not known and not name.startswith((_HUGE, f"requests.{_HUGE}")):
        causes.append(invalid(path, name, "must be a standard resource for quota"))
    return causes


def check_container_resource(name: str, path: str) -> list[Cause]:
    """A name that a container can ask for."""
    causes = check_resource_name(name, path)
    if "/" not in name:
        if name not in _STANDARD and not name.startswith(_HUGE):
            causes.append(invalid(path, name, "must be a standard resource for containers"))
    elif not is_native(name) and name.startswith("requests."):
        causes.append(invalid(path, name, "doesn't follow extended resource name standard"))
    return causes


def check_requirements(
    resources: dict[str, Any], path: str, claims: frozenset[str] = frozenset()
) -> list[Cause]:
    """`resources` of a container; `claims` are the names in the pod's `spec.resourceClaims`."""
    causes: list[Cause] = []
    limits, requests = resources.get("limits"), resources.get("requests")
    if limits:
        causes = _check_list(limits, f"{path}.limits")
    if requests:
        causes += _check_list(requests, f"{path}.requests")
        if limits or not requests.keys() <= _STANDARD:
            causes += _check_within(requests, limits or {}, path)
    if "claims" in resources:
        causes += _check_claims(resources["claims"] or (), f"{path}.claims", claims)
    return causes


def _check_list(amounts: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for name, amount in amounts.items():
        if name not in _STANDARD:
            causes += check_container_resource(name, f"{path}[{name}]")
            causes += check_amount(name, amount, f"{path}[{name}]")
        elif amount[0] == "-":
            causes += check_amount(name, amount, f"{path}[{name}]")
    return causes


def _check_within(requests: dict[str, Any], limits: dict[str, Any], path: str) -> list[Cause]:
    """Requests are at most the limits, and the same where a resource cannot be overcommitted."""
    causes: list[Cause] = []
    for name, amount in requests.items():
        limit = limits.get(name)
        if limit is None:
            if not can_overcommit(name):
                detail = "Limit must be set for non overcommitable resources"
                causes.append(required(f"{path}.limits", detail))
        elif limit != amount:
            asked, most = milli_value(amount), milli_value(limit)
            if asked != most and not can_overcommit(name):
                causes.append(
                    invalid(f"{path}.requests", amount, f"must be equal to {name} limit of {limit}")
                )
            elif asked > most:
                detail = f"must be less than or equal to {name} limit of {limit}"
                causes.append(invalid(f"{path}.requests", amount, detail))
    asked_for = requests.keys() | limits.keys()
    if any(name.startswith(_HUGE) for name in asked_for) and not asked_for & {"cpu", "memory"}:
        causes.append(forbidden(path, "HugePages require cpu or memory"))
    return causes


def _check_claims(listed: Any, path: str, known: frozenset[str]) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[tuple[str, str]] = set()
    for index, claim in enumerate(listed):
        at, name = f"{path}[{index}]", claim.get("name", "")
        if not name:
            causes.append(required(f"{at}.name"))
            continue
        if (name, claim.get("request", "")) in seen:
            causes.append(duplicate(at, name))
        seen.add((name, claim.get("request", "")))
        if name not in known:
            causes.append(not_found(at, name))
    return causes
