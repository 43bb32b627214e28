"""EndpointSlices, IngressClasses and NetworkPolicies: stored and checked, for nothing routes traffic here.

Left out: Ingress, IPAddress and ServiceCIDR, which no scheduler and no drain ever reads.
"""

from __future__ import annotations

from typing import Any

from ..errors import Cause
from ..resource import Object
from . import names
from .causes import (
    check_one_of,
    check_range,
    duplicate,
    immutable,
    invalid,
    required,
    too_many,
)
from .kind import Logic

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_MOST_ENDPOINTS, _MOST_ADDRESSES, _MOST_PORTS = 1000, 100, 20_000


def _check_slice(endpoints: Object, old: Object | None) -> list[Cause]:
    kind, listed = endpoints.get("addressType", ""), endpoints.get("endpoints") or []
    causes = check_one_of("addressType", kind, _ADDRESS_TYPES)
    if old is not None and kind != old.get("addressType"):
        causes.append(immutable("addressType", kind))
    if len(listed) > _MOST_ENDPOINTS:
        return [*causes, too_many("endpoints", len(listed), _MOST_ENDPOINTS)]
    for index, endpoint in enumerate(listed):
        at, addresses = f"endpoints[{index}].addresses", endpoint.get("addresses") or []
        if not addresses:
            causes.append(required(at, "must contain at least 1 address"))
        elif len(addresses) > _MOST_ADDRESSES:
            causes.append(too_many(at, len(addresses), _MOST_ADDRESSES))
        check = names.subdomain if kind == "FQDN" else names.ip
        for place, address in enumerate(addresses):
            causes += [invalid(f"{at}[{place}]", address, problem) for problem in check(address)]
    return causes + _check_ports(endpoints.get("ports") or [])


def _check_ports(ports: list[dict[str, Any]]) -> list[Cause]:
    if len(ports) > _MOST_PORTS:
        return [too_many("ports", len(ports), _MOST_PORTS)]
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        at, name = f"ports[{index}]", port.get("name") or ""
        if name:
            causes += [invalid(f"{at}.name", name, problem) for problem in names.label(name)]
        if name in seen:
            causes.append(duplicate(f"{at}.name", name))
        seen.add(name)
        causes += check_one_of(f"{at}.protocol", port.get("protocol"), _PROTOCOLS)
        if port.get("port") is not None:
            causes += check_range(f"{at}.port", port["port"], low=1, high=65535)
    return causes


def _default_policy(policy: Object) -> None:
    spec = policy.setdefault("spec", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]


LOGIC = {
    ("discovery.k8s.io", "EndpointSlice"): Logic(check=_check_slice),
    ("networking.k8s.io", "NetworkPolicy"): Logic(default=_default_policy),
}
