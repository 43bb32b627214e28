"""Which ResourceClaims a stored pod uses, and by what name, for those that make claims and those that honour them.

A pod names a claim itself, or a template; of a claim that was generated from a template its status tells the name. The
claim that a scheduler makes for extended resources is named by the status alone (KEP-5004).

Costs: a search of the pod's bytes for pods without claims; nothing is decoded for them.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import Struct

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


class _Entry(Struct, rename="camel"):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _Extended(Struct, rename="camel"):
    resource_claim_name: str = ""


class _Spec(Struct, rename="camel"):
    resource_claims: list[_Entry] | None = None


class _Status(Struct, rename="camel"):
    resource_claim_statuses: list[_Entry] | None = None
    extended_resource_claim_status: _Extended | None = None


class _Pod(Struct):
    spec: _Spec
    status: _Status | None = None


_read = msgspec.json.Decoder(_Pod).decode


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
    read = _read(pod.data)
    status = read.status or _Status()
    named = {each.name: each.resource_claim_name or "" for each in status.resource_claim_statuses or ()}
    uses = [
        Use(each.name, each.resource_claim_template_name or "", each.resource_claim_name)
        if each.resource_claim_name is not None
        else Use(each.name, each.resource_claim_template_name or "", named.get(each.name))
        for each in read.spec.resource_claims or ()
    ]
    if status.extended_resource_claim_status is not None:
        uses.append(Use("", "", status.extended_resource_claim_status.resource_claim_name))
    return tuple(uses)
