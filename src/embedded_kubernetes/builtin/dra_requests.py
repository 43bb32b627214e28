"""What device claims ask for (resource.k8s.io/v1, KEP-4381): requests, constraints, configuration, selectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import Cause
from . import names
from .causes import check_format, invalid, required
from .rules import check_part


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


def request_names(spec: dict[str, Any]) -> set[str]:
    """What a claim's constraints, configuration and results may refer to: its requests, and the choices within one."""
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
