"""EndpointSlices, IngressClasses and NetworkPolicies: stored and checked, for nothing routes traffic here.

Left out: Ingress, IPAddress and ServiceCIDR, which no scheduler and no drain ever reads.
"""

from __future__ import annotations

from typing import Any

from ..errors import Cause
from ..resource import Object, Resource
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
from .containers import check_port
from .kind import builtin
from .selectors import check_label_selector

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_MOST_ENDPOINTS, _MOST_ADDRESSES, _MOST_PORTS = 1000, 100, 20_000


def _default_slice(endpoints: Object) -> None:
    for port in endpoints.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


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


def _check_ingress_class(ingress_class: Object, old: Object | None) -> list[Cause]:
    spec = ingress_class.get("spec") or {}
    controller = spec.get("controller", "")
    causes = [] if controller or old is not None else [required("spec.controller")]
    if old is not None and controller != (old.get("spec") or {}).get("controller", ""):
        causes.append(immutable("spec.controller", controller))
    if (parameters := spec.get("parameters")) is not None:
        at = "spec.parameters"
        causes += [required(f"{at}.{field}") for field in ("kind", "name") if not parameters.get(field)]
        causes += check_one_of(f"{at}.scope", parameters.get("scope"), ("Cluster", "Namespace"))
    return causes


def _default_ingress_class(ingress_class: Object) -> None:
    parameters = (ingress_class.get("spec") or {}).get("parameters")
    if parameters is not None and not parameters.get("scope"):
        parameters["scope"] = "Cluster"


def _default_policy(policy: Object) -> None:
    spec = policy.setdefault("spec", {})
    for rule in [*(spec.get("ingress") or ()), *(spec.get("egress") or ())]:
        for port in rule.get("ports") or ():
            if not port.get("protocol"):
                port["protocol"] = "TCP"
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]


def _check_policy(policy: Object, old: Object | None) -> list[Cause]:
    spec = policy.get("spec") or {}
    causes = check_label_selector(spec.get("podSelector"), "spec.podSelector")
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or ()):
            at = f"spec.{direction}[{index}]"
            for place, port in enumerate(rule.get("ports") or ()):
                causes += check_one_of(f"{at}.ports[{place}].protocol", port.get("protocol"), _PROTOCOLS)
                if port.get("port") is not None:
                    causes += check_port(port["port"], f"{at}.ports[{place}].port")
            for place, peer in enumerate(rule.get(peers) or ()):
                causes += _check_peer(peer, f"{at}.{peers}[{place}]")
    for index, kind in enumerate(spec.get("policyTypes") or ()):
        causes += check_one_of(f"spec.policyTypes[{index}]", kind, ("Egress", "Ingress"))
    return causes


def _check_peer(peer: dict[str, Any], at: str) -> list[Cause]:
    given = [
        field for field in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(field) is not None
    ]
    if not given:
        return [required(at, "must specify a peer")]
    causes: list[Cause] = []
    for field in given:
        if field != "ipBlock":
            causes += check_label_selector(peer[field], f"{at}.{field}")
        elif not peer[field].get("cidr"):
            causes.append(required(f"{at}.ipBlock.cidr"))
    return causes


NETWORKING: tuple[Resource, ...] = (
    builtin(
        group="discovery.k8s.io",
        version="v1",
        kind="EndpointSlice",
        rechecks="whole",
        plural="endpointslices",
        namespaced=True,
        default=_default_slice,
        check=_check_slice,
        generation=True,
        counted=("endpoints", "ports"),
    ),
    builtin(
        group="networking.k8s.io",
        version="v1",
        kind="IngressClass",
        plural="ingressclasses",
        namespaced=False,
        default=_default_ingress_class,
        check=_check_ingress_class,
        generation=True,
    ),
    builtin(
        group="networking.k8s.io",
        version="v1",
        kind="NetworkPolicy",
        rechecks="change",
        plural="networkpolicies",
        namespaced=True,
        short_names=("netpol",),
        default=_default_policy,
        check=_check_policy,
        generation=True,
    ),
)
