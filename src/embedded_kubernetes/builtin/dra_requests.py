"""What device claims ask for (resource.k8s.io/v1, KEP-4381): requests, constraints, configuration, selectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import Cause
from . import names
from .causes import check_format, check_name, check_one_of, duplicate, invalid, required, too_long, too_many

_MAX_REQUESTS = _MAX_CONSTRAINTS = _MAX_SELECTORS = 32
_MAX_EXPRESSION = 10 * 1024
_MAX_CHOICES = 8


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
    """Paths of what asks for admin access."""
    return [
        f"{path}.devices.requests[{index}].exactly.adminAccess"
        for index, request in enumerate((spec.get("devices") or {}).get("requests") or ())
        if (request.get("exactly") or {}).get("adminAccess")
    ]


def check_selectors(selectors: list[dict[str, Any]] | None, path: str) -> Iterator[Cause]:
    """CEL selectors: that there is an expression; a real server also compiles it."""
    if selectors and len(selectors) > _MAX_SELECTORS:
        yield too_many(path, len(selectors), _MAX_SELECTORS)
    for index, selector in enumerate(selectors or ()):
        cel = selector.get("cel")
        if cel is None:
            yield required(f"{path}[{index}].cel")
        elif not cel.get("expression"):
            yield required(f"{path}[{index}].cel.expression")
        elif len(cel["expression"]) > _MAX_EXPRESSION:
            yield too_long(f"{path}[{index}].cel.expression", _MAX_EXPRESSION)


def _check_request(request: dict[str, Any], path: str) -> Iterator[Cause]:
    name = request.get("deviceClassName", "")
    yield from check_name(f"{path}.deviceClassName", name, names.subdomain)
    yield from check_selectors(request.get("selectors"), f"{path}.selectors")
    mode, count = request.get("allocationMode"), request.get("count", 0)
    if mode == "All":
        if count:
            yield invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount":
        if count <= 0:
            yield invalid(f"{path}.count", count, "must be greater than zero")
    else:
        yield from check_one_of(f"{path}.allocationMode", mode, ("All", "ExactCount"))
    for index, toleration in enumerate(request.get("tolerations") or ()):
        yield from _check_toleration(toleration, f"{path}.tolerations[{index}]")


def _check_toleration(toleration: dict[str, Any], at: str) -> Iterator[Cause]:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    if key:
        yield from check_format(f"{at}.key", key, names.qualified)
    elif operator != "Exists":
        yield required(f"{at}.key", "must be set unless operator is Exists")
    yield from check_one_of(f"{at}.operator", operator, ("Equal", "Exists"))
    if operator == "Exists" and toleration.get("value"):
        yield invalid(f"{at}.value", toleration["value"], "must be empty for operator `Exists`")
    effect = toleration.get("effect")
    if effect and effect not in ("None", "NoExecute", "NoSchedule"):
        yield from check_one_of(f"{at}.effect", effect, ("NoExecute", "NoSchedule", "None"))


def check_claim_spec(spec: dict[str, Any], path: str) -> Iterator[Cause]:
    devices = spec.get("devices") or {}
    at = f"{path}.devices"
    known: set[str] = set()
    requests = devices.get("requests") or []
    if len(requests) > _MAX_REQUESTS:
        yield too_many(f"{at}.requests", len(requests), _MAX_REQUESTS)
    for index, request in enumerate(requests):
        yield from _check_named_request(request, f"{at}.requests[{index}]", known)
    constraints = devices.get("constraints") or []
    if len(constraints) > _MAX_CONSTRAINTS:
        yield too_many(f"{at}.constraints", len(constraints), _MAX_CONSTRAINTS)
    for index, constraint in enumerate(constraints):
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
        yield from check_opaque(config, here)


def _check_named_request(request: dict[str, Any], at: str, known: set[str]) -> Iterator[Cause]:
    name = request.get("name", "")
    yield from check_format(f"{at}.name", name, names.label)
    if name in known:
        yield duplicate(f"{at}.name", name)
    known.add(name)
    exactly, choices = request.get("exactly"), request.get("firstAvailable") or []
    if exactly is not None and choices:
        yield invalid(at, None, "exactly one of `exactly` or `firstAvailable` is required")
    elif exactly is not None:
        yield from _check_request(exactly, f"{at}.exactly")
    elif choices:
        if len(choices) > _MAX_CHOICES:
            yield too_many(f"{at}.firstAvailable", len(choices), _MAX_CHOICES)
        for index, choice in enumerate(choices):
            here, own = f"{at}.firstAvailable[{index}]", choice.get("name", "")
            yield from check_format(f"{here}.name", own, names.label)
            if f"{name}/{own}" in known:
                yield duplicate(f"{here}.name", own)
            known.add(f"{name}/{own}")
            yield from _check_request(choice, here)
    else:
        yield required(at, "exactly one of `exactly` or `firstAvailable` is required")


def check_request_names(listed: Any, path: str, known: set[str]) -> list[Cause]:
    return [
        cause
        for index, name in enumerate(listed)
        for cause in check_request_name(name, f"{path}[{index}]", known)
    ]


def check_request_name(name: str, path: str, known: set[str]) -> Iterator[Cause]:
    """A reference to a request of the claim, or to a choice within one."""
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


def check_opaque(config: dict[str, Any], at: str) -> Iterator[Cause]:
    opaque = config.get("opaque")
    if opaque is None:
        yield required(f"{at}.opaque")
        return
    driver = opaque.get("driver", "")
    yield from check_name(f"{at}.opaque.driver", driver, names.subdomain)
    if opaque.get("parameters") is None:
        yield required(f"{at}.opaque.parameters")
    elif not isinstance(opaque["parameters"], dict):
        yield invalid(f"{at}.opaque.parameters", "<value omitted>", "must be a valid JSON object")
