"""Resource claims and their templates (KEP-4381): how they are defaulted, and what may change in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from ..errors import Cause
from ..resource import Object
from . import names
from .causes import (
    check_name,
    check_one_of,
    duplicate,
    forbidden,
    immutable,
    invalid,
    required,
    too_many,
)
from .dra_requests import (
    check_claim_spec,
    check_opaque,
    check_request_name,
    check_request_names,
    default_devices,
)
from .kind import Logic
from .selectors import check_node_selector

_MAX_RESULTS = 32
_MAX_RESERVED = 256
#: Of a class and of a claim.
_MAX_CONFIG = 2 * 32
_SHARE_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


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
    if len(reserved) > _MAX_RESERVED:
        yield too_many("status.reservedFor", len(reserved), _MAX_RESERVED)
    seen: set[str] = set()
    for index, consumer in enumerate(reserved):
        at, uid = f"status.reservedFor[{index}]", consumer.get("uid", "")
        yield from (
            required(f"{at}.{field}") for field in ("resource", "name", "uid") if not consumer.get(field)
        )
        if uid and uid in seen:
            yield duplicate(at, consumer)
        seen.add(uid)
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
    known: set[str] = set()
    for request in (spec.get("devices") or {}).get("requests") or ():
        known.add(request.get("name", ""))
        known |= {
            f"{request.get('name')}/{choice.get('name')}" for choice in request.get("firstAvailable") or ()
        }
    results = (allocation.get("devices") or {}).get("results") or []
    if len(results) > _MAX_RESULTS:
        yield too_many(f"{at}.devices.results", len(results), _MAX_RESULTS)
    for index, result in enumerate(results):
        here = f"{at}.devices.results[{index}]"
        yield from check_request_name(result.get("request", ""), f"{here}.request", known)
        for field, rule in (("driver", names.subdomain), ("device", names.label)):
            value = result.get(field, "")
            yield from check_name(f"{here}.{field}", value, rule)
        pool = result.get("pool")
        if not pool:
            yield required(f"{here}.pool")
        else:
            yield from (
                invalid(f"{here}.pool", pool, why)
                for part in pool.split("/")
                for why in names.subdomain(part)
            )
        share = result.get("shareID")
        if share is not None and not _SHARE_ID.fullmatch(share):
            yield invalid(f"{here}.shareID", share, "must be a UUID in lower case")
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
        if not config.get("source"):
            yield required(f"{here}.source")
        else:
            yield from check_one_of(f"{here}.source", config["source"], ("FromClaim", "FromClass"))
        yield from check_request_names(config.get("requests") or (), f"{here}.requests", known)
        yield from check_opaque(config, here)


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
