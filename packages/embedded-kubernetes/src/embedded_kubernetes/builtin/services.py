"""Services, EndpointSlices and NetworkPolicies.

No traffic is routed. Services get addresses and node ports so that manifests apply. A cluster IP is a hash of the
service's UID, so collisions are possible but unlikely; a service can specify its own address.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from zlib import crc32

from ..errors import Cause
from ..resource import Object
from . import names
from .causes import immutable, invalid
from .kind import Logic

_EXTERNAL = ("NodePort", "LoadBalancer")


def _default_service(service: Object) -> None:
    spec = service["spec"]
    if spec["sessionAffinity"] == "ClientIP":
        config = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        config.setdefault("timeoutSeconds", 10800)
    else:
        spec.pop("sessionAffinityConfig", None)
    kind = spec["type"]
    for port in spec.get("ports") or ():
        if port.get("targetPort") in (None, 0, "") and "port" in port:
            port["targetPort"] = port["port"]
    if kind != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind in _EXTERNAL and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = "Cluster"
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def _allocate(service: Object) -> None:
    """Set the cluster IP, IP families and node ports of a service that does not specify them."""
    spec = service["spec"]
    if spec.get("type") == "ExternalName":
        return
    number = crc32(str(service["metadata"].get("uid", "")).encode())
    if not spec.get("clusterIP"):
        # 10.96.0.0/12 without its first 16 addresses, which are for services that specify their own.
        host = 16 + number % (2**20 - 32)
        spec["clusterIP"] = f"10.{96 + (host >> 16)}.{(host >> 8) & 255}.{host & 255}"
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    family = "IPv6" if ":" in spec["clusterIP"] else "IPv4"
    spec.setdefault("ipFamilies", [family])
    if spec["clusterIP"] == "None" and not spec.get("selector"):
        # Endpoints of a headless service without selector may be of both families.
        policy, families = spec.setdefault("ipFamilyPolicy", "RequireDualStack"), spec["ipFamilies"]
        if policy != "SingleStack" and len(families) == 1:
            spec["ipFamilies"] = [*families, "IPv6" if families[0] == "IPv4" else "IPv4"]
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if spec["type"] in _EXTERNAL and spec.get("allocateLoadBalancerNodePorts", True):
        for index, port in enumerate(spec.get("ports") or ()):
            port.setdefault("nodePort", 30000 + (number + index) % 2768)


def _update(service: Object, old: Object) -> None:
    spec, before = service["spec"], old["spec"]
    if before.get("type") != "ExternalName" and spec["type"] != "ExternalName":
        for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not spec.get(field) and field in before:
                spec[field] = before[field]
        ports = {(port.get("port"), port.get("protocol")): port for port in before.get("ports") or ()}
        for port in spec.get("ports") or ():
            known = ports.get((port.get("port"), port.get("protocol")), {})
            if spec["type"] in _EXTERNAL and not port.get("nodePort") and "nodePort" in known:
                port["nodePort"] = known["nodePort"]
    _allocate(service)


def _check_service(service: Object, old: Object | None) -> Iterator[Cause]:
    spec: dict[str, Any] = service.get("spec") or {}
    before = {} if old is None or spec.get("type") == "ExternalName" else old.get("spec") or {}
    if before.get("clusterIP") and spec.get("clusterIP") != before["clusterIP"]:
        yield immutable("spec.clusterIPs[0]", spec.get("clusterIPs"))


def _check_addresses(endpoints: Object, old: Object | None) -> list[Cause]:
    check = names.subdomain if endpoints.get("addressType") == "FQDN" else names.ip
    return [
        invalid(f"endpoints[{index}].addresses[{place}]", address, problem)
        for index, endpoint in enumerate(endpoints.get("endpoints") or ())
        for place, address in enumerate(endpoint.get("addresses") or ())
        for problem in check(address)
    ]


def _default_policy(policy: Object) -> None:
    spec = policy.setdefault("spec", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]


LOGIC = {
    ("", "Service"): Logic(default=_default_service, check=_check_service, on_create=_allocate, on_update=_update),
    ("discovery.k8s.io", "EndpointSlice"): Logic(check=_check_addresses),
    ("networking.k8s.io", "NetworkPolicy"): Logic(default=_default_policy),
}
