"""The claim that the scheduler creates for the extended resources of a pod, once its node is chosen (KEP-5004).

    assumed in memory ──> created ──> allocated and reserved ──> named by the pod's status ──> the bind
       └── at any time: the claim is deleted, and the pod's status names none

The pod controls the claim, and an annotation identifies it. Its name is derived from the pod's UID, in the form of a
generated one, so that only one claim is created, however often and in which process an attempt is repeated. A claim
left by a failed attempt was made for that attempt's node; it is deleted and never reused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ..state.claimspec import ClaimSpec, claim_spec
from ..state.podclaims import PodRef
from .allocation import Allocation
from .records import EXTENDED_RESOURCE_CLAIM, FINALIZER

#: PostFilter's message if a claim of an earlier attempt is being deleted.
DELETED: Final = "deletion of ResourceClaim completed"

#: Generated names: the longest prefix, and the letters and length of the suffix.
_BASE_AT_MOST: Final = 58
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_RANDOM: Final = 5

_encode = msgspec.json.Encoder().encode


class InMemoryClaim(NamedTuple):
    """The claim for a pod's extended resources at its node, which is not created yet."""

    #: The results of `extended.claim_for`.
    spec: dict[str, Any]
    mappings: list[dict[str, str]]
    allocation: Allocation

    @property
    def claim_spec(self) -> ClaimSpec:
        return claim_spec(_encode(self.spec))


class MadeClaim(NamedTuple):
    namespace: str
    name: str
    uid: str


def base_of(pod: PodRef) -> str:
    return f"{pod.name}-extended-resources-"


def name_of(pod: PodRef, number: int = 0) -> str:
    """Return the name of a pod's claim. `number` counts attempts if the earlier names are taken by other objects."""
    digest = int(hashlib.sha256(f"{pod.uid}/{number}".encode()).hexdigest(), 16)
    end = ""
    for _ in range(_RANDOM):
        digest, letter = divmod(digest, len(_LETTERS))
        end += _LETTERS[letter]
    return base_of(pod)[:_BASE_AT_MOST] + end


def manifest(pod: PodRef, name: str, spec: dict[str, Any]) -> bytes:
    """Return the claim to create.

    It has the finalizer from the start because it is allocated immediately afterwards.
    """
    return _encode(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "name": name,
                "namespace": pod.namespace,
                "generateName": base_of(pod),
                "annotations": {EXTENDED_RESOURCE_CLAIM: "true"},
                "finalizers": [FINALIZER],
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
                ],
            },
            "spec": spec,
        }
    )


def owner_of(claim: dict[str, Any]) -> str:
    """Return the UID of the object that controls a claim in the API's form."""
    owners = (claim.get("metadata") or {}).get("ownerReferences") or ()
    return next((each.get("uid", "") for each in owners if each.get("controller")), "")


def status_patch(pod: PodRef, claim: str = "", mappings: Sequence[dict[str, str]] = ()) -> bytes:
    """Return the patch of the pod's status with the devices of each container; without `claim`, it removes them."""
    status = {"resourceClaimName": claim, "requestMappings": mappings} if claim else None
    return _encode({"metadata": {"uid": pod.uid}, "status": {"extendedResourceClaimStatus": status}})


def unprotected(uid: str) -> bytes:
    """Return a strategic patch that removes the finalizer of a claim that will be deleted."""
    return _encode({"metadata": {"uid": uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}})
