"""The claim that a scheduler makes for the extended resources of a pod, when it has chosen its node (KEP-5004).

    assumed in memory ──> the claim is made ──> it is allocated and reserved ──> the pod's status names it ──> the bind
       └── at any time: the claim is deleted, and the pod's status names none

The claim is the pod's own: the pod controls it, and an annotation tells it from others. Its name follows from the pod's
UID, though it looks like a generated one, so that one claim is made, however often and in which process an attempt is
repeated. A claim that an attempt left behind was made for that attempt's node; it is deleted, never used again.
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

#: PostFilter's message where a claim of an earlier attempt is being deleted.
DELETED: Final = "deletion of ResourceClaim completed"

#: Of generated names: the most that is kept of what they begin with, and what their ends are made of.
_BASE_AT_MOST: Final = 58
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_RANDOM: Final = 5

_encode = msgspec.json.Encoder().encode


class InMemoryClaim(NamedTuple):
    """The claim for a pod's extended resources at its node, which is not made yet."""

    #: As `extended.claim_for` gives them.
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
    """The name of a pod's claim. `number`: of the attempt, where the names before it are taken by other objects."""
    digest = int(hashlib.sha256(f"{pod.uid}/{number}".encode()).hexdigest(), 16)
    end = ""
    for _ in range(_RANDOM):
        digest, letter = divmod(digest, len(_LETTERS))
        end += _LETTERS[letter]
    return base_of(pod)[:_BASE_AT_MOST] + end


def manifest(pod: PodRef, name: str, spec: dict[str, Any]) -> bytes:
    """The claim as it is made. It is protected from the start: it never is without an allocation for long."""
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
                    {
                        "apiVersion": "v1",
                        "kind": "Pod",
                        "name": pod.name,
                        "uid": pod.uid,
                        "controller": True,
                    }
                ],
            },
            "spec": spec,
        }
    )


def owner_of(claim: dict[str, Any]) -> str:
    """UID of the object that controls a claim as the API server has it."""
    owners = (claim.get("metadata") or {}).get("ownerReferences") or ()
    return next((each.get("uid", "") for each in owners if each.get("controller")), "")


def status_patch(pod: PodRef, claim: str = "", mappings: Sequence[dict[str, str]] = ()) -> bytes:
    """Patch of the pod's status: which container gets what of the claim; without `claim`, that there is none."""
    status = {"resourceClaimName": claim, "requestMappings": mappings} if claim else None
    return _encode({"metadata": {"uid": pod.uid}, "status": {"extendedResourceClaimStatus": status}})


def unprotected(uid: str) -> bytes:
    """Strategic patch of a claim that is to be deleted: takes off its finalizer."""
    return _encode({"metadata": {"uid": uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}})
