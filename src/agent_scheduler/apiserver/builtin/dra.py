"""Dynamic resource allocation (resource.k8s.io/v1, KEP-4381): claims, templates, device classes, slices."""

from __future__ import annotations

from typing import Any

from ..errors import Cause
from ..resource import Object, Resource
from . import names
from .causes import check_one_of, duplicate, forbidden, immutable, invalid, required, too_many
from .kind import builtin
from .placement import TAINT_EFFECTS
from .selectors import check_node_selector

_GROUP = "resource.k8s.io"
_MAX_REQUESTS = _MAX_CONSTRAINTS = _MAX_CONFIG = _MAX_SELECTORS = _MAX_RESULTS = 32
_MAX_RESERVED = 256
_MAX_DEVICES = 128


def _default_request(request: dict[str, Any]) -> None:
    if not request.get("allocationMode"):
        request["allocationMode"] = "ExactCount"
    if request["allocationMode"] == "ExactCount" and not request.get("count"):
        request["count"] = 1
    for toleration in request.get("tolerations") or ():
        if not toleration.get("operator"):
            toleration["operator"] = "Equal"


def _default_devices(spec: dict[str, Any]) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        if (exactly := request.get("exactly")) is not None:
            _default_request(exactly)
        for choice in request.get("firstAvailable") or ():
            _default_request(choice)


def _default_claim(claim: Object) -> None:
    spec = claim.setdefault("spec", {})
    spec.setdefault("devices", {})
    _default_devices(spec)
    claim.setdefault("status", {})


def _default_template(template: Object) -> None:
    inner = template.setdefault("spec", {})
    inner.setdefault("metadata", {})
    spec = inner.setdefault("spec", {})
    spec.setdefault("devices", {})
    _default_devices(spec)


def _check_selectors(selectors: list[dict[str, Any]] | None, path: str) -> list[Cause]:
    """CEL selectors: that there is an expression; a real server also compiles it."""
    causes = (
        [too_many(path, len(selectors), _MAX_SELECTORS)]
        if selectors and len(selectors) > _MAX_SELECTORS
        else []
    )
    for index, selector in enumerate(selectors or ()):
        cel = selector.get("cel")
        if cel is None:
            causes.append(required(f"{path}[{index}].cel"))
        elif not cel.get("expression"):
            causes.append(required(f"{path}[{index}].cel.expression"))
        elif len(cel["expression"]) > 10 * 1024:
            limit = 10 * 1024
            at = f"{path}[{index}].cel.expression"
            causes.append(Cause("FieldValueTooLong", at, f"Too long: may not be more than {limit} bytes"))
    return causes


def _check_request(request: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    name = request.get("deviceClassName", "")
    if not name:
        causes.append(required(f"{path}.deviceClassName"))
    else:
        causes += [invalid(f"{path}.deviceClassName", name, problem) for problem in names.subdomain(name)]
    causes += _check_selectors(request.get("selectors"), f"{path}.selectors")
    mode, count = request.get("allocationMode"), request.get("count", 0)
    if mode == "All":
        if count:
            detail = "must not be specified when allocationMode is 'All'"
            causes.append(invalid(f"{path}.count", count, detail))
    elif mode == "ExactCount":
        if count <= 0:
            causes.append(invalid(f"{path}.count", count, "must be greater than zero"))
    else:
        causes += check_one_of(f"{path}.allocationMode", mode, ("All", "ExactCount"))
    for index, toleration in enumerate(request.get("tolerations") or ()):
        causes += _check_toleration(toleration, f"{path}.tolerations[{index}]")
    return causes


def _check_toleration(toleration: dict[str, Any], at: str) -> list[Cause]:
    causes: list[Cause] = []
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    if key:
        causes += [invalid(f"{at}.key", key, problem) for problem in names.qualified(key)]
    elif operator != "Exists":
        causes.append(required(f"{at}.key", "must be set unless operator is Exists"))
    causes += check_one_of(f"{at}.operator", operator, ("Equal", "Exists"))
    if operator == "Exists" and toleration.get("value"):
        detail = "must be empty for operator `Exists`"
        causes.append(invalid(f"{at}.value", toleration["value"], detail))
    effect = toleration.get("effect")
    if effect and effect not in ("None", "NoExecute", "NoSchedule"):
        causes += check_one_of(f"{at}.effect", effect, ("NoExecute", "NoSchedule", "None"))
    return causes


def _check_claim_spec(spec: dict[str, Any], path: str) -> list[Cause]:
    devices = spec.get("devices") or {}
    at = f"{path}.devices"
    causes: list[Cause] = []
    known: set[str] = set()
    requests = devices.get("requests") or []
    if len(requests) > _MAX_REQUESTS:
        causes.append(too_many(f"{at}.requests", len(requests), _MAX_REQUESTS))
    for index, request in enumerate(requests):
        causes += _check_named_request(request, f"{at}.requests[{index}]", known)
    constraints = devices.get("constraints") or []
    if len(constraints) > _MAX_CONSTRAINTS:
        causes.append(too_many(f"{at}.constraints", len(constraints), _MAX_CONSTRAINTS))
    for index, constraint in enumerate(constraints):
        here = f"{at}.constraints[{index}]"
        causes += _check_names_known(constraint.get("requests") or (), f"{here}.requests", known)
        attribute = constraint.get("matchAttribute") or constraint.get("distinctAttribute")
        if not attribute:
            causes.append(required(f"{here}.matchAttribute"))
        else:
            causes += _check_full_attribute(attribute, f"{here}.matchAttribute")
    for index, config in enumerate(devices.get("config") or ()):
        here = f"{at}.config[{index}]"
        causes += _check_names_known(config.get("requests") or (), f"{here}.requests", known)
        causes += _check_opaque(config, here)
    return causes


def _check_named_request(request: dict[str, Any], at: str, known: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    name = request.get("name", "")
    if not name:
        causes.append(required(f"{at}.name"))
    else:
        causes += [invalid(f"{at}.name", name, problem) for problem in names.label(name)]
    if name in known:
        causes.append(duplicate(f"{at}.name", name))
    known.add(name)
    exactly, choices = request.get("exactly"), request.get("firstAvailable") or []
    if exactly is not None and choices:
        causes.append(invalid(at, None, "exactly one of `exactly` or `firstAvailable` is required"))
    elif exactly is not None:
        causes += _check_request(exactly, f"{at}.exactly")
    elif choices:
        for index, choice in enumerate(choices):
            here, own = f"{at}.firstAvailable[{index}]", choice.get("name", "")
            causes += [] if own else [required(f"{here}.name")]
            if f"{name}/{own}" in known:
                causes.append(duplicate(f"{here}.name", own))
            known.add(f"{name}/{own}")
            causes += _check_request(choice, here)
    else:
        causes.append(required(at, "exactly one of `exactly` or `firstAvailable` is required"))
    return causes


def _check_names_known(listed: Any, path: str, known: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    for index, name in enumerate(listed):
        if name not in known:
            detail = (
                "must be the name of a request in the claim or the name of a request and a subrequest separated "
                "by '/'"
            )
            causes.append(invalid(f"{path}[{index}]", name, detail))
    return causes


def _check_full_attribute(name: str, path: str) -> list[Cause]:
    domain, slash, identifier = name.rpartition("/")
    if not slash:
        return [invalid(path, name, "must include a domain")]
    causes = [invalid(path, domain, problem) for problem in names.subdomain(domain)]
    return causes + [invalid(path, identifier, problem) for problem in names.c_identifier(identifier)]


def _check_opaque(config: dict[str, Any], at: str) -> list[Cause]:
    opaque = config.get("opaque")
    if opaque is None:
        return [required(f"{at}.opaque")]
    causes: list[Cause] = []
    driver = opaque.get("driver", "")
    if not driver:
        causes.append(required(f"{at}.opaque.driver"))
    else:
        causes += [invalid(f"{at}.opaque.driver", driver, problem) for problem in names.subdomain(driver)]
    if opaque.get("parameters") is None:
        causes.append(required(f"{at}.opaque.parameters"))
    elif not isinstance(opaque["parameters"], dict):
        causes.append(invalid(f"{at}.opaque.parameters", "<value omitted>", "must be a valid JSON object"))
    return causes


def _check_claim(claim: Object, old: Object | None) -> list[Cause]:
    spec = claim.get("spec") or {}
    if old is not None:
        return [] if spec == (old.get("spec") or {}) else [immutable("spec", spec)]
    return _check_claim_spec(spec, "spec")


def _check_claim_status(claim: Object, old: Object) -> list[Cause]:
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
            detail = "new entries may not be added while `deletionTimestamp` is set"
            causes.append(forbidden("status.reservedFor", detail))
    if allocation is not None:
        causes += _check_allocation(allocation, claim.get("spec") or {})
    if was is not None:
        if allocation is not None and allocation != was:
            causes.append(immutable("status.allocation", allocation))
        elif allocation is None and before.get("reservedFor") and reserved:
            causes.append(forbidden("status.allocation", "claim is in use"))
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
        causes += _check_names_known([result.get("request", "")], f"{here}.request", known)
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
        if len(selector.get("nodeSelectorTerms") or ()) > 1:
            terms = selector["nodeSelectorTerms"]
            causes.append(
                invalid(
                    f"{at}.nodeSelector.nodeSelectorTerms", terms, "must have exactly one node selector term"
                )
            )
    return causes


def _check_template(template: Object, old: Object | None) -> list[Cause]:
    spec = template.get("spec") or {}
    if old is not None:
        return [] if spec == (old.get("spec") or {}) else [immutable("spec", spec)]
    return _check_claim_spec(spec.get("spec") or {}, "spec.spec")


def _check_class(device_class: Object, old: Object | None) -> list[Cause]:
    spec = device_class.get("spec") or {}
    causes = _check_selectors(spec.get("selectors"), "spec.selectors")
    for index, config in enumerate(spec.get("config") or ()):
        causes += _check_opaque(config, f"spec.config[{index}]")
    if name := spec.get("extendedResourceName"):
        causes += [invalid("spec.extendedResourceName", name, text) for text in names.qualified(name)]
    return causes


def _check_slice(slice_: Object, old: Object | None) -> list[Cause]:
    spec = slice_.get("spec") or {}
    causes: list[Cause] = []
    driver, pool = spec.get("driver", ""), spec.get("pool") or {}
    if not driver:
        causes.append(required("spec.driver"))
    else:
        causes += [invalid("spec.driver", driver, problem) for problem in names.subdomain(driver)]
    name = pool.get("name", "")
    if not name:
        causes.append(required("spec.pool.name"))
    else:
        causes += [
            invalid("spec.pool.name", name, problem)
            for part in name.split("/")
            for problem in names.subdomain(part)
        ]
    if pool.get("resourceSliceCount", 0) <= 0:
        count = pool.get("resourceSliceCount", 0)
        causes.append(invalid("spec.pool.resourceSliceCount", count, "must be greater than zero"))
    if pool.get("generation", 0) < 0:
        at = "spec.pool.generation"
        causes.append(invalid(at, pool["generation"], "must be greater than or equal to zero"))
    causes += _check_slice_nodes(spec)
    devices = spec.get("devices") or []
    if len(devices) > _MAX_DEVICES:
        causes.append(too_many("spec.devices", len(devices), _MAX_DEVICES))
    seen: set[str] = set()
    for index, device in enumerate(devices):
        causes += _check_device(device, f"spec.devices[{index}]", seen)
    if old is not None:
        before = old.get("spec") or {}
        was = (before.get("pool") or {}).get("name", "")
        for field, now, then in (
            ("driver", driver, before.get("driver", "")),
            ("nodeName", spec.get("nodeName"), before.get("nodeName")),
            ("pool.name", name, was),
        ):
            if now != then:
                causes.append(immutable(f"spec.{field}", now))
    return causes


def _check_slice_nodes(spec: dict[str, Any]) -> list[Cause]:
    given = [
        field
        for field in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
        if spec.get(field) not in (None, "", False)
    ]
    choices = "`nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection`"
    if not given:
        return [required("spec", f"exactly one of {choices} is required")]
    if len(given) > 1:
        listed = ", ".join(f"`{field}`" for field in given)
        return [
            invalid(
                "spec", f"{{{listed}}}", f"exactly one of {choices} is required, but multiple fields are set"
            )
        ]
    if "nodeName" in given:
        name = spec["nodeName"]
        return [invalid("spec.nodeName", name, problem) for problem in names.subdomain(name)]
    if "nodeSelector" in given:
        causes = check_node_selector(spec["nodeSelector"], "spec.nodeSelector")
        terms = spec["nodeSelector"].get("nodeSelectorTerms") or []
        if len(terms) > 1:
            at = "spec.nodeSelector.nodeSelectorTerms"
            causes.append(invalid(at, terms, "must have exactly one node selector term"))
        return causes
    return []


def _check_device(device: dict[str, Any], at: str, seen: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    name = device.get("name", "")
    if not name:
        causes.append(required(f"{at}.name"))
    else:
        causes += [invalid(f"{at}.name", name, problem) for problem in names.label(name)]
    if name in seen:
        causes.append(duplicate(f"{at}.name", name))
    seen.add(name)
    for key, attribute in (device.get("attributes") or {}).items():
        here = f"{at}.attributes[{key}]"
        causes += _check_device_key(key, here)
        kinds = [kind for kind in ("bool", "int", "string", "version") if attribute.get(kind) is not None]
        if len(kinds) != 1:
            detail = "exactly one value must be specified"
            causes.append(invalid(here, attribute, detail) if kinds else required(here, detail))
        for kind in ("string", "version"):
            if len(attribute.get(kind) or "") > 64:
                causes.append(
                    Cause("FieldValueTooLong", f"{here}.{kind}", "Too long: may not be more than 64 bytes")
                )
    for key in device.get("capacity") or {}:
        causes += _check_device_key(key, f"{at}.capacity[{key}]")
    for index, taint in enumerate(device.get("taints") or ()):
        here, key = f"{at}.taints[{index}]", taint.get("key", "")
        causes += [invalid(f"{here}.key", key, problem) for problem in names.qualified(key)]
        causes += check_one_of(f"{here}.effect", taint.get("effect"), (*TAINT_EFFECTS[::2], "None"))
    return causes


def _check_device_key(key: str, path: str) -> list[Cause]:
    domain, slash, identifier = key.rpartition("/")
    causes: list[Cause] = []
    if not identifier:
        causes.append(required(path, "the name must not be empty"))
    else:
        causes += [invalid(path, identifier, problem) for problem in names.c_identifier(identifier)]
    if slash:
        causes += [invalid(path, domain, problem) for problem in names.subdomain(domain)]
    return causes


def _slice_fields(slice_: Object) -> dict[str, str]:
    spec = slice_.get("spec") or {}
    return {"spec.nodeName": spec.get("nodeName") or "", "spec.driver": spec.get("driver", "")}


DRA: tuple[Resource, ...] = (
    builtin(
        group=_GROUP,
        version="v1",
        kind="DeviceClass",
        plural="deviceclasses",
        namespaced=False,
        check=_check_class,
        generation=True,
        returns_deleted=True,
    ),
    builtin(
        group=_GROUP,
        version="v1",
        kind="ResourceClaim",
        plural="resourceclaims",
        namespaced=True,
        default=_default_claim,
        check=_check_claim,
        status=True,
        first_status={},
        check_status=_check_claim_status,
        status_keeps_labels=True,
        returns_deleted=True,
    ),
    builtin(
        group=_GROUP,
        version="v1",
        kind="ResourceClaimTemplate",
        plural="resourceclaimtemplates",
        namespaced=True,
        default=_default_template,
        check=_check_template,
        returns_deleted=True,
    ),
    builtin(
        group=_GROUP,
        version="v1",
        kind="ResourceSlice",
        plural="resourceslices",
        namespaced=False,
        check=_check_slice,
        generation=True,
        field_names=("spec.nodeName", "spec.driver"),
        fields=_slice_fields,
        returns_deleted=True,
    ),
)
