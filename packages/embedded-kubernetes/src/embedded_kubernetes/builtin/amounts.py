"""Validation of resource lists: names, amounts, and requests within limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apimachinery.quantity import QuantityError, milli_value

from ..errors import Cause
from . import names
from .causes import duplicate, forbidden, invalid, not_found, required

_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
_HUGE = "hugepages-"
_INTEGER = frozenset(
    {"pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps"}
    | {"persistentvolumeclaims", "services.nodeports", "services.loadbalancers"}
)
#: Valid names without a domain, outside of containers.
_KNOWN = _STANDARD | _INTEGER | {"storage", "requests.storage"}
_KNOWN |= {f"{kind}.{name}" for kind in ("requests", "limits") for name in _STANDARD}


def is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    """Return whether the name is that of an extended resource, such as `example.com/gpu`."""
    return not is_native(name) and not name.startswith("requests.")


def can_overcommit(name: str) -> bool:
    return is_native(name) and not name.startswith(_HUGE)


def check_amount(name: str, amount: object, path: str) -> Iterator[Cause]:
    """Check that the amount is not negative, and whole for countable resources. It is a canonical quantity."""
    if type(amount) is not str:
        return
    if amount.startswith("-"):
        yield invalid(path, amount, "must be greater than or equal to 0")
    if name not in _STANDARD and (name in _INTEGER or is_extended(name)) and milli_value(amount) % 1000:
        yield invalid(path, amount, "must be an integer")


def check_resource_name(name: str, path: str) -> Iterator[Cause]:
    """Check a resource name in a quota, a limit range or a container."""
    if problems := names.qualified(name):
        yield from (invalid(path, name, problem) for problem in problems)
        return
    if "/" in name or name in _KNOWN or name.startswith((_HUGE, f"requests.{_HUGE}")):
        return
    yield invalid(path, name, "must be a standard resource type or fully qualified")


def check_quota_name(name: str, path: str) -> Iterator[Cause]:
    yield from check_resource_name(name, path)
    known = name in _KNOWN and name != "storage"
    if "/" not in name and not known and not name.startswith((_HUGE, f"requests.{_HUGE}")):
        yield invalid(path, name, "must be a standard resource for quota")


def check_container_resource(name: str, path: str) -> Iterator[Cause]:
    """Check a resource name in a container."""
    yield from check_resource_name(name, path)
    if "/" not in name:
        if name not in _STANDARD and not name.startswith(_HUGE):
            yield invalid(path, name, "must be a standard resource for containers")
    elif not is_native(name) and name.startswith("requests."):
        yield invalid(path, name, "doesn't follow extended resource name standard")


def check_requirements(resources: dict[str, Any], path: str, claims: frozenset[str] = frozenset()) -> Iterator[Cause]:
    """Check `resources` of a container; `claims` are the names in the pod's `spec.resourceClaims`."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, amount in limits.items():
        yield from _check_counted(name, amount, f"{path}.limits")
    for name, amount in requests.items():
        yield from _check_counted(name, amount, f"{path}.requests")
        if limits or name not in _STANDARD:
            yield from _check_within(name, amount, limits.get(name), path)
    if not (limits.keys() <= _STANDARD and requests.keys() <= _STANDARD):
        asked_for = requests.keys() | limits.keys()
        if any(name.startswith(_HUGE) for name in asked_for) and not asked_for & {"cpu", "memory"}:
            yield forbidden(path, "HugePages require cpu or memory")
    if "claims" in resources:
        yield from _check_claims(resources["claims"] or (), f"{path}.claims", claims)


def _check_counted(name: str, amount: Any, path: str) -> Iterator[Cause]:
    if name in _STANDARD:
        if amount[0] == "-":
            yield from check_amount(name, amount, f"{path}[{name}]")
        return
    at = f"{path}[{name}]"
    yield from check_container_resource(name, at)
    yield from check_amount(name, amount, at)
    if name.startswith(_HUGE) and not _is_divisible(amount, name.removeprefix(_HUGE)):
        yield invalid(at, amount, f"{amount} is not positive integer multiple of {name}")


def _is_divisible(amount: str, page: str) -> bool:
    try:
        size = milli_value(page)
    except QuantityError:
        return False
    return size > 0 and milli_value(amount) % size == 0


def _check_within(name: str, amount: Any, limit: Any, path: str) -> Iterator[Cause]:
    """Check that a request is within the limit, and equal to it for resources without overcommit."""
    if limit is None:
        if can_overcommit(name):
            return
        yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        return
    if limit == amount:
        return
    asked, most = milli_value(amount), milli_value(limit)
    if asked != most and not can_overcommit(name):
        yield invalid(f"{path}.requests", amount, f"must be equal to {name} limit of {limit}")
        return
    if asked > most:
        yield invalid(f"{path}.requests", amount, f"must be less than or equal to {name} limit of {limit}")
        return


def _check_claims(listed: Any, path: str, known: frozenset[str]) -> Iterator[Cause]:
    seen: set[tuple[str, str]] = set()
    for index, claim in enumerate(listed):
        at, name = f"{path}[{index}]", claim.get("name", "")
        if not name:
            yield required(at)
            continue
        if (name, claim.get("request", "")) in seen:
            yield duplicate(at, name)
        seen.add((name, claim.get("request", "")))
        if name not in known:
            yield not_found(at, name)
