"""Resource claims and their templates (KEP-4381): how they are defaulted, and what may change in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from ..errors import Cause
from ..resource import Object
from .causes import (
    check_one_of,
    duplicate,
    forbidden,
    immutable,
    invalid,
    too_many,
)
from .dra_requests import (
    check_claim_spec,
    check_request_name,
    check_request_names,
    default_devices,
    request_names,
)
from .kind import Logic
from .rules import check_part
from .selectors import check_node_selector

_MAX_RESULTS = 32
#: Of a class and of a claim.
_MAX_CONFIG = 2 * 32


def forget_devices(claim: Object, old: Object) -> None:
    """What drivers said of devices goes with the allocation, whoever clears that."""
    status = claim.get("status") or {}
    if _allocated(old) and not status.get("allocation"):
        status.pop("devices", None)


def _allocated(claim: Object) -> set[tuple[str, ...]]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return {_device(result) for result in (allocation.get("devices") or {}).get("results") or ()}


def _device(named: dict[str, Any]) -> tuple[str, ...]:
    """The device that a result of an allocation, or a driver's report, is about."""
    return tuple(named.get(field) or "" for field in ("driver", "pool", "device", "shareID"))


def check_claim_status(claim: Object, old: Object) -> Iterator[Cause]:
    """Allocation once given stays as it is while it is used; reservations need an allocation."""
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
            detail = (
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            )
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
    yield from _check_config(
        (allocation.get("devices") or {}).get("config") or [], f"{at}.devices.config", known
    )
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
    """Drivers speak of each allocated device once, and of no others."""
    seen: set[tuple[str, ...]] = set()
    for index, report in enumerate(reports):
        at, device = f"status.devices[{index}]", _device(report)
        if device in seen:
            yield duplicate(at, report)
        seen.add(device)
        if device not in allocated:
            yield invalid(at, "/".join(filter(None, device)), "must be an allocated device in the claim")


def _check_spec(where: tuple[str, ...], obj: Object, old: Object | None) -> Iterable[Cause]:
    """`where` in the object what is claimed stands. Its whole spec is fixed."""
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
        default=lambda template: default_devices(template["spec"]["spec"]),
        check=partial(_check_spec, ("spec", "spec")),
    ),
}
