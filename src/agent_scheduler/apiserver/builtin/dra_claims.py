"""Resource claims and their templates (KEP-4381): how they are defaulted, and what may change in them."""

from __future__ import annotations

from typing import Any

from ..errors import Cause
from ..resource import Object
from . import names
from .causes import duplicate, forbidden, immutable, invalid, required, too_many
from .dra_requests import check_claim_spec, check_request_name, default_devices
from .selectors import check_node_selector

_MAX_RESULTS = 32
_MAX_RESERVED = 256


def default_claim(claim: Object) -> None:
    spec = claim.setdefault("spec", {})
    spec.setdefault("devices", {})
    default_devices(spec)
    claim.setdefault("status", {})


def default_template(template: Object) -> None:
    inner = template.setdefault("spec", {})
    inner.setdefault("metadata", {})
    spec = inner.setdefault("spec", {})
    spec.setdefault("devices", {})
    default_devices(spec)


def check_claim(claim: Object, old: Object | None) -> list[Cause]:
    spec = claim.get("spec") or {}
    if old is not None:
        return [] if spec == (old.get("spec") or {}) else [immutable("spec", spec)]
    return check_claim_spec(spec, "spec")


def check_claim_status(claim: Object, old: Object) -> list[Cause]:
    """Allocation once given stays as it is while it is used; reservations need an allocation."""
    causes: list[Cause] = []
    status, before = claim.get("status") or {}, old.get("status") or {}
    allocation, was = status.get("allocation"), before.get("allocation")
    reserved = status.get("reservedFor") or []
    if len(reserved) > _MAX_RESERVED:
        causes.append(too_many("status.reservedFor", len(reserved), _MAX_RESERVED))
    seen: set[str] = set()
    for index, consumer in enumerate(reserved):
        at, uid = f"status.reservedFor[{index}]", consumer.get("uid", "")
        causes += [
            required(f"{at}.{field}") for field in ("resource", "name", "uid") if not consumer.get(field)
        ]
        if uid and uid in seen:
            causes.append(duplicate(at, consumer))
        seen.add(uid)
    if reserved and not allocation:
        detail = "may not be specified when `allocated` is not set"
        causes.append(forbidden("status.reservedFor", detail))
    if "deletionTimestamp" in claim["metadata"]:
        known = {consumer.get("uid") for consumer in before.get("reservedFor") or ()}
        if any(consumer.get("uid") not in known for consumer in reserved):
            detail = (
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            )
            causes.append(forbidden("status.reservedFor", detail))
    if allocation is not None and was is None:
        causes += _check_allocation(allocation, claim.get("spec") or {})
    elif allocation is not None and allocation != was:
        causes.append(immutable("status.allocation", allocation))
    return causes


def _check_allocation(allocation: dict[str, Any], spec: dict[str, Any]) -> list[Cause]:
    at = "status.allocation"
    causes: list[Cause] = []
    known: set[str] = set()
    for request in (spec.get("devices") or {}).get("requests") or ():
        known.add(request.get("name", ""))
        known |= {
            f"{request.get('name')}/{choice.get('name')}" for choice in request.get("firstAvailable") or ()
        }
    results = (allocation.get("devices") or {}).get("results") or []
    if len(results) > _MAX_RESULTS:
        causes.append(too_many(f"{at}.devices.results", len(results), _MAX_RESULTS))
    for index, result in enumerate(results):
        here = f"{at}.devices.results[{index}]"
        causes += check_request_name(result.get("request", ""), f"{here}.request", known)
        for field, rule in (("driver", names.subdomain), ("device", names.label)):
            value = result.get(field, "")
            if not value:
                causes.append(required(f"{here}.{field}"))
            else:
                causes += [invalid(f"{here}.{field}", value, problem) for problem in rule(value)]
        if not result.get("pool"):
            causes.append(required(f"{here}.pool"))
    if (selector := allocation.get("nodeSelector")) is not None:
        causes += check_node_selector(selector, f"{at}.nodeSelector")
    return causes


def check_template(template: Object, old: Object | None) -> list[Cause]:
    spec = template.get("spec") or {}
    if old is not None:
        return [] if spec == (old.get("spec") or {}) else [immutable("spec", spec)]
    return check_claim_spec(spec.get("spec") or {}, "spec.spec")
