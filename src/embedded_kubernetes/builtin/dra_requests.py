"""What device claims ask for (resource.k8s.io/v1, KEP-4381): requests, constraints, configuration, selectors."""

from __future__ import annotations

from typing import Any

from ..errors import Cause
from . import names
from .causes import check_one_of, duplicate, invalid, required, too_long, too_many

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


def check_selectors(selectors: list[dict[str, Any]] | None, path: str) -> list[Cause]:
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
        elif len(cel["expression"]) > _MAX_EXPRESSION:
            causes.append(too_long(f"{path}[{index}].cel.expression", _MAX_EXPRESSION))
    return causes


def _check_request(request: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    name = request.get("deviceClassName", "")
    if not name:
        causes.append(required(f"{path}.deviceClassName"))
    else:
        causes += [invalid(f"{path}.deviceClassName", name, problem) for problem in names.subdomain(name)]
    causes += check_selectors(request.get("selectors"), f"{path}.selectors")
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


def check_claim_spec(spec: dict[str, Any], path: str) -> list[Cause]:
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
        causes += check_request_names(constraint.get("requests") or (), f"{here}.requests", known)
        attribute = constraint.get("matchAttribute") or constraint.get("distinctAttribute")
        if not attribute:
            detail = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
            causes.append(required(here, detail))
        else:
            causes += _check_full_attribute(attribute, f"{here}.matchAttribute")
    for index, config in enumerate(devices.get("config") or ()):
        here = f"{at}.config[{index}]"
        causes += check_request_names(config.get("requests") or (), f"{here}.requests", known)
        causes += check_opaque(config, here)
    return causes


def _check_named_request(request: dict[str, Any], at: str, known: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    name = request.get("name", "")
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
        if len(choices) > _MAX_CHOICES:
            causes.append(too_many(f"{at}.firstAvailable", len(choices), _MAX_CHOICES))
        for index, choice in enumerate(choices):
            here, own = f"{at}.firstAvailable[{index}]", choice.get("name", "")
            causes += [invalid(f"{here}.name", own, problem) for problem in names.label(own)]
            if f"{name}/{own}" in known:
                causes.append(duplicate(f"{here}.name", own))
            known.add(f"{name}/{own}")
            causes += _check_request(choice, here)
    else:
        causes.append(required(at, "exactly one of `exactly` or `firstAvailable` is required"))
    return causes


def check_request_names(listed: Any, path: str, known: set[str]) -> list[Cause]:
    return [
        cause
        for index, name in enumerate(listed)
        for cause in check_request_name(name, f"{path}[{index}]", known)
    ]


def check_request_name(name: str, path: str, known: set[str]) -> list[Cause]:
    """A reference to a request of the claim, or to a choice within one."""
    if name in known:
        return []
    detail = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
    parts = name.split("/") if name.count("/") < 2 else []
    causes = [invalid(path, part, problem) for part in parts for problem in names.label(part)]
    return [*causes, invalid(path, name, detail)]


def _check_full_attribute(name: str, path: str) -> list[Cause]:
    domain, slash, identifier = name.rpartition("/")
    if not slash:
        return [invalid(path, name, "must include a domain")]
    causes = [invalid(path, domain, problem) for problem in names.subdomain(domain)]
    return causes + [invalid(path, identifier, problem) for problem in names.c_identifier(identifier)]


def check_opaque(config: dict[str, Any], at: str) -> list[Cause]:
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
