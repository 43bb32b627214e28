"""Resource claims and their templates (resource.k8s.io/v1, KEP-4381): defaults, validation and immutable fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from ..errors import Cause
from ..resource import Object
from . import names
from .causes import check_format, check_one_of, duplicate, forbidden, immutable, invalid, required, too_many
from .kind import Logic
from .rules import check_part
from .selectors import check_node_selector

_MAX_RESULTS = 32
#: The configuration of a class and that of a claim together.
_MAX_CONFIG = 2 * 32


def _default_request(request: dict[str, Any]) -> None:
    if not request.get("allocationMode"):
        request["allocationMode"] = "ExactCount"
    if request["allocationMode"] == "ExactCount" and not request.get("count"):
        request["count"] = 1
    for toleration in request.get("tolerations") or ():
        if not toleration.get("operator"):
            toleration["operator"] = "Equal"


def default_devices(spec: dict[str, Any]) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        if (exactly := request.get("exactly")) is not None:
            _default_request(exactly)
        for choice in request.get("firstAvailable") or ():
            _default_request(choice)


def admin_access(spec: dict[str, Any], path: str) -> list[str]:
    """Return the paths of requests for admin access."""
    return [
        f"{path}.devices.requests[{index}].exactly.adminAccess"
        for index, request in enumerate((spec.get("devices") or {}).get("requests") or ())
        if (request.get("exactly") or {}).get("adminAccess")
    ]


def request_names(spec: dict[str, Any]) -> set[str]:
    """Return the names that constraints, configuration and results may refer to: requests and their subrequests."""
    known: set[str] = set()
    for request in (spec.get("devices") or {}).get("requests") or ():
        name = request.get("name", "")
        known.add(name)
        if request.get("exactly") is None:
            known |= {f"{name}/{choice.get('name', '')}" for choice in request.get("firstAvailable") or ()}
    return known


def check_claim_spec(spec: dict[str, Any], path: str) -> Iterator[Cause]:
    devices = spec.get("devices") or {}
    at, known = f"{path}.devices", request_names(spec)
    yield from check_part("deviceRequests", devices, at)
    for index, constraint in enumerate(devices.get("constraints") or ()):
        here = f"{at}.constraints[{index}]"
        yield from check_request_names(constraint.get("requests") or (), f"{here}.requests", known)
        attribute = constraint.get("matchAttribute") or constraint.get("distinctAttribute")
        if not attribute:
            detail = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
            yield required(here, detail)
        else:
            yield from _check_full_attribute(attribute, f"{here}.matchAttribute")
    for index, config in enumerate(devices.get("config") or ()):
        here = f"{at}.config[{index}]"
        yield from check_request_names(config.get("requests") or (), f"{here}.requests", known)
        yield from check_part("opaque", config, here)


def check_request_names(listed: Any, path: str, known: set[str]) -> list[Cause]:
    return [cause for index, name in enumerate(listed) for cause in check_request_name(name, f"{path}[{index}]", known)]


def check_request_name(name: str, path: str, known: set[str]) -> Iterator[Cause]:
    """Check a reference to a request of the claim or to a subrequest."""
    if name in known:
        return
    detail = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
    parts = name.split("/") if name.count("/") < 2 else []
    yield from (invalid(path, part, problem) for part in parts for problem in names.label(part))
    yield invalid(path, name, detail)


def _check_full_attribute(name: str, path: str) -> Iterator[Cause]:
    domain, slash, identifier = name.rpartition("/")
    if not slash:
        yield invalid(path, name, "must include a domain")
        return
    yield from check_format(path, domain, names.subdomain)
    yield from check_format(path, identifier, names.c_identifier)


def forget_devices(claim: Object, old: Object) -> None:
    """Remove drivers' device statuses when the allocation is cleared."""
    status = claim.get("status") or {}
    if _allocated(old) and not status.get("allocation"):
        status.pop("devices", None)


def _allocated(claim: Object) -> set[tuple[str, ...]]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return {_device(result) for result in (allocation.get("devices") or {}).get("results") or ()}


def _device(named: dict[str, Any]) -> tuple[str, ...]:
    """Return the key of the device in an allocation result or a device status."""
    return tuple(named.get(field) or "" for field in ("driver", "pool", "device", "shareID"))


def check_claim_status(claim: Object, old: Object) -> Iterator[Cause]:
    """Check that an allocation in use does not change and that reservations have an allocation."""
    status, before = claim.get("status") or {}, old.get("status") or {}
    allocation, was = status.get("allocation"), before.get("allocation")
    reserved = status.get("reservedFor") or []
    yield from check_part("reservations", status, "status")
    if reserved and not allocation:
        detail = "may not be specified when `allocated` is not set"
        yield forbidden("status.reservedFor", detail)
    if "deletionTimestamp" in claim["metadata"]:
        known = {consumer.get("uid") for consumer in before.get("reservedFor") or ()}
        if any(consumer.get("uid") not in known for consumer in reserved):
            detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            yield forbidden("status.reservedFor", detail)
    yield from _check_reports(status.get("devices") or [], _allocated(claim))
    if allocation is not None and was is None:
        yield from _check_allocation(allocation, claim.get("spec") or {})
    elif allocation is not None and allocation != was:
        yield immutable("status.allocation", allocation)


def _check_allocation(allocation: dict[str, Any], spec: dict[str, Any]) -> Iterator[Cause]:
    at = "status.allocation"
    known = request_names(spec)
    results = (allocation.get("devices") or {}).get("results") or []
    if len(results) > _MAX_RESULTS:
        yield too_many(f"{at}.devices.results", len(results), _MAX_RESULTS)
    for index, result in enumerate(results):
        here = f"{at}.devices.results[{index}]"
        yield from check_request_name(result.get("request", ""), f"{here}.request", known)
        yield from check_part("allocatedDevice", result, here)
    yield from _check_config((allocation.get("devices") or {}).get("config") or [], f"{at}.devices.config", known)
    if (selector := allocation.get("nodeSelector")) is not None:
        yield from check_node_selector(selector, f"{at}.nodeSelector")


def _check_config(configs: list[dict[str, Any]], at: str, known: set[str]) -> Iterator[Cause]:
    if len(configs) > _MAX_CONFIG:
        yield too_many(at, len(configs), _MAX_CONFIG)
    for index, config in enumerate(configs):
        here = f"{at}[{index}]"
        yield from check_one_of(f"{here}.source", config.get("source"), ("FromClaim", "FromClass"))
        yield from check_request_names(config.get("requests") or (), f"{here}.requests", known)
        yield from check_part("opaque", config, here)


def _check_reports(reports: list[dict[str, Any]], allocated: set[tuple[str, ...]]) -> Iterator[Cause]:
    """Check that each device status is unique and refers to an allocated device."""
    seen: set[tuple[str, ...]] = set()
    for index, report in enumerate(reports):
        at, device = f"status.devices[{index}]", _device(report)
        if device in seen:
            yield duplicate(at, report)
        seen.add(device)
        if device not in allocated:
            yield invalid(at, "/".join(filter(None, device)), "must be an allocated device in the claim")


def _check_spec(where: tuple[str, ...], obj: Object, old: Object | None) -> Iterable[Cause]:
    """Check a claim or template. `where` is the path of the claim's spec, which is immutable."""
    spec = obj.get("spec") or {}
    if old is not None:
        return [] if spec == (old.get("spec") or {}) else [immutable("spec", spec)]
    for field in where:
        obj = obj.get(field) or {}
    return check_claim_spec(obj, ".".join(where))


LOGIC = {
    ("resource.k8s.io", "ResourceClaim"): Logic(
        default=lambda claim: default_devices(claim["spec"]),
        check=partial(_check_spec, ("spec",)),
        on_status=forget_devices,
        check_status=check_claim_status,
    ),
    ("resource.k8s.io", "ResourceClaimTemplate"): Logic(
        default=lambda template: default_devices(template["spec"]["spec"]), check=partial(_check_spec, ("spec", "spec"))
    ),
}
