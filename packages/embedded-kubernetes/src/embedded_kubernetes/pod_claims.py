"""The ResourceClaims that a stored pod uses, and their names.

A pod names a claim or a template. The name of a claim that was generated from a template is in the pod's status. The
claim that a scheduler creates for extended resources is only named in the status (KEP-5004).

Cost: one search of the encoded pod if it has no claims; it is not decoded.
"""

from __future__ import annotations

from typing import NamedTuple

from . import nesting
from .resource import Object
from .store import Record

CLAIMS = ("resource.k8s.io", "resourceclaims")
_IN_SPEC = b'"resourceClaims":[{'
_IN_STATUS = b'"extendedResourceClaimStatus":{'


class Use(NamedTuple):
    """One claim of a pod."""

    #: Its name in `spec.resourceClaims`; empty for the claim for extended resources.
    entry: str
    #: Its template; empty if it has none.
    template: str
    #: The claim's name; None while it is unknown, empty if the pod needs no claim.
    claim: str | None


def names_claims(pod: Record) -> bool:
    """Return whether the pod's immutable spec has claims. False positives are possible."""
    return _IN_SPEC in pod.data


def uses_claims(pod: Object) -> bool:
    """Return whether a decoded pod uses any claim."""
    return "resourceClaims" in pod["spec"] or "extendedResourceClaimStatus" in pod.get("status", {})


def uses_of(pod: Record) -> tuple[Use, ...]:
    """Return the claims of a pod in the order of its spec."""
    if _IN_SPEC not in pod.data and _IN_STATUS not in pod.data:
        return ()
    read: Object = nesting.loads(pod.data)
    status = read.get("status") or {}
    named = {each["name"]: each.get("resourceClaimName", "") for each in status.get("resourceClaimStatuses") or ()}
    uses = [
        Use(
            each["name"],
            each.get("resourceClaimTemplateName") or "",
            each["resourceClaimName"] if "resourceClaimName" in each else named.get(each["name"]),
        )
        for each in read["spec"].get("resourceClaims") or ()
    ]
    if (extended := status.get("extendedResourceClaimStatus")) is not None:
        uses.append(Use("", "", extended.get("resourceClaimName", "")))
    return tuple(uses)
