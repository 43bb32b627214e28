"""EndpointSlices, IngressClasses and NetworkPolicies: stored and checked, for nothing routes traffic here.

Left out: Ingress, IPAddress and ServiceCIDR, which no scheduler and no drain ever reads.
"""

from __future__ import annotations

from ..errors import Cause
from ..resource import Object
from . import names
from .causes import invalid
from .kind import Logic


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
    ("discovery.k8s.io", "EndpointSlice"): Logic(check=_check_addresses),
    ("networking.k8s.io", "NetworkPolicy"): Logic(default=_default_policy),
}
