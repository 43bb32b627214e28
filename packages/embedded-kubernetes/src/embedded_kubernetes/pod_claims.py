"""Which ResourceClaims a stored pod uses, and by what name, for those that make claims and those that honour them.

A pod names a claim itself, or a template; of a claim that was generated from a template its status tells the name. The
claim that a scheduler makes for extended resources is named by the status alone (KEP-5004).

Costs: a search of the pod's bytes for pods without claims; nothing is decoded for them.
"""

from __future__ import annotations

from typing import NamedTuple

import orjson

from .resource import Object
from .store import Record

CLAIMS = ("resource.k8s.io", "resourceclaims")
_IN_SPEC = b'"resourceClaims":[{'
_IN_STATUS = b'"extendedResourceClaimStatus":{'


class Use(NamedTuple):
    """One claim of a pod."""

    #: Its name among `spec.resourceClaims`; empty for the claim for extended resources.
    entry: str
    #: The template that it comes from; empty where none does.
    template: str
    #: The claim's name; None while it is not known, and empty if the pod needs none after all.
    claim: str | None


def names_claims(pod: Record) -> bool:
    """Whether the pod's spec, of which that never changes, has claims. True for some that have none."""
    return _IN_SPEC in pod.data


def uses_claims(pod: Object) -> bool:
    """Whether a decoded pod uses any claim."""
    return "resourceClaims" in pod["spec"] or "extendedResourceClaimStatus" in pod.get("status", {})


def uses_of(pod: Record) -> tuple[Use, ...]:
    """The claims of a pod, in the order of its spec."""
    if _IN_SPEC not in pod.data and _IN_STATUS not in pod.data:
        return ()
    read: Object = orjson.loads(pod.data)
    status = read.get("status") or {}
    named = {
        each["name"]: each.get("resourceClaimName", "") for each in status.get("resourceClaimStatuses") or ()
    }
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
