"""The steps for a pod's resource claims once its node is chosen: reserve, and determine the writes.

    reserve ──> due ──> Devices.written, a write at a time ──> done: the bind
       └── Devices.forget, at any time: unwritten assumptions are undone; written ones by `without_pod`

`reserve` reads the current devices, not those of the decision, and takes all or nothing. A write that allocates a
claim, or adds a pod to its reservations, has the UID and the version of the claim that it was made for, so it is
rejected if the claim was changed in between. The finalizer comes first: the API server must not delete a claim whose
devices are in use (`resource.kubernetes.io/delete-protection`).
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import Any, Final, NamedTuple

import msgspec

from ..state.batchinfo import GroupKey
from ..state.nodeinfo import NodeInfo
from ..state.podclaims import ClaimDemand, ClaimKey, PodClaim, PodRef
from .allocation import AllocatedDevices, Allocation
from .allocator import NOT_AVAILABLE, CannotAllocate, answer
from .catalogue import RESERVED_AT_MOST, Devices, SearchBudget
from .demand import claims_of, to_allocate
from .extended import claim_for
from .extended_claim import InMemoryClaim
from .records import FINALIZER, ResourceClaimInfo

#: DynamicResources' message after its search for a claim to deallocate (`PostFilter`).
DEALLOCATED: Final = "deallocation of ResourceClaim completed"
STILL: Final = "still not schedulable"

_encode = msgspec.json.Encoder().encode


class ReservedClaim(NamedTuple):
    """A claim that a pod uses."""

    claim: ClaimKey
    uid: str
    #: The allocation to write; None if it has one, which is `allocated`.
    allocation: Allocation | None
    allocated: AllocatedDevices


class ReservedClaims(NamedTuple):
    """The reservations of DynamicResources for a pod at its node."""

    pod: PodRef
    node_name: str
    claims: tuple[ReservedClaim, ...]
    #: The claim to create for its extended resources; None if it needs none.
    in_memory: InMemoryClaim | None = None
    #: The time for written allocations; empty for none.
    at: str = ""


class Write(NamedTuple):
    """A patch of one claim: JSON merge patch, or `strategic`."""

    claim: ClaimKey
    status: bool
    strategic: bool
    body: bytes


class Due(enum.Enum):
    """A result instead of a write."""

    DONE = enum.auto()
    #: The watch has to report a newer version of the claim first.
    WAIT = enum.auto()


class Lost(NamedTuple):
    """The reservation has failed; `reason` is for people."""

    reason: str


def reserve(
    claims: Collection[PodClaim],
    demand: ClaimDemand,
    devices: Devices,
    node: NodeInfo,
    pod: PodRef,
    *,
    group: GroupKey | None = None,
    at: str = "",
) -> ReservedClaims | CannotAllocate:
    """Take what the pod's claims need on the node. On a refusal nothing is taken.

    `group` is that of the pod, as for `demand`; `at` is the time in the API's format.
    """
    if demand.problem:
        return CannotAllocate(demand.problem)
    found = answer(demand, devices, node, SearchBudget())
    if isinstance(found, CannotAllocate):
        return found
    claims = claims_of(claims)
    parts: list[ReservedClaim] = []
    for claim, allocation in zip(to_allocate(claims, devices, group), found, strict=False):
        parts.append(ReservedClaim(claim.key, claim.uid, allocation, allocation.allocated))
    for each in demand.allocated:
        known, allocated = devices.claim(each.key), devices.allocation(each.key, group)
        if known is None or allocated is None:
            return CannotAllocate(NOT_AVAILABLE)
        parts.append(ReservedClaim(each.key, known.uid, None, allocated))
    for part in parts:
        if not devices.assume(part.claim, part.allocation, pod.uid, group):
            devices.forget(pod.uid)
            return CannotAllocate(NOT_AVAILABLE)
    in_memory = None
    made = claim_for(demand.extended, devices, node) if demand.extended is not None else None
    if made is not None:
        in_memory = InMemoryClaim(*made, found[-1])
        if not devices.assume_in_memory(pod.uid, in_memory.claim_spec, in_memory.allocation):
            devices.forget(pod.uid)
            return CannotAllocate(NOT_AVAILABLE)
    return ReservedClaims(pod, node.name, tuple(parts), in_memory, at)


def due(reservation: ReservedClaims, part: ReservedClaim, devices: Devices, version: str) -> Write | Due | Lost:
    """Return the next write for one claim.

    `version` is that of the API server's last answer; empty for the known one.
    """
    claim, pod = devices.claim(part.claim), reservation.pod
    name = f"{part.claim[0]}/{part.claim[1]}"
    if claim is None or claim.uid != part.uid:
        return Lost(f"resourceclaim {name} does not exist any more")
    if devices.is_deallocated(part.claim):
        return Lost(f"resourceclaim {name} was deallocated")
    if devices.is_unreserved(part.claim, pod.uid):
        # The known version still has the reservation.
        return Due.WAIT
    if pod.uid in claim.reserved_for and claim.allocation == part.allocated:
        return Due.DONE
    if claim.deleting:
        return Lost(f"resourceclaim {name} is being deleted")
    if claim.allocation is not None and claim.allocation != part.allocated:
        return Lost(f"resourceclaim {name} was allocated by another client")
    if part.allocation is None and claim.allocation is None:
        if devices.assumed.is_about_to_have(part.claim, part.allocated):
            return Due.WAIT
        if devices.allocation(part.claim) is None:
            return Lost(f"resourceclaim {name} was deallocated")
        if not version:
            return Due.WAIT
    if part.allocation is None or claim.allocation is not None:
        # It has, or is about to have, consumers, which a write of the whole status would remove.
        if len(claim.reserved_for) >= RESERVED_AT_MOST:
            return Lost(f"resourceclaim {name} is reserved for {RESERVED_AT_MOST} others")
        status: dict[str, Any] = {"reservedFor": [_consumer(pod)]}
        return Write(part.claim, True, True, _body(claim, version, status=status))
    if is_overtaken(reservation, part, devices):
        # The API server would accept it: it does not compare claims.
        return Lost(f"devices for resourceclaim {name} were given to others")
    if not claim.protected and not version:
        return Write(part.claim, False, True, _body(claim, "", finalizers=[FINALIZER]))
    status = {"allocation": part.allocation.status(part.uid, reservation.at), "reservedFor": [_consumer(pod)]}
    return Write(part.claim, True, False, _body(claim, version, status=status))


def is_overtaken(reservation: ReservedClaims, part: ReservedClaim, devices: Devices) -> bool:
    """Return whether one claim's part of the reservation, if not reported by the watch, can no longer be made."""
    allocated_for = reservation.pod.uid if part.allocation is not None else None
    return devices.is_overtaken(part.claim, part.allocated, allocated_for)


def without_pod(key: ClaimKey, uid: str, pod: PodRef, version: str) -> Write:
    """Return a write that removes a pod from a claim's reservations, valid only at this version.

    Applied late, it must not remove the reservation of the pod's next attempt.
    """
    status = {"reservedFor": [{"$patch": "delete", "uid": pod.uid}]}
    return Write(key, True, True, _encode({"metadata": {"uid": uid, "resourceVersion": version}, "status": status}))


def to_deallocate(demand: ClaimDemand, devices: Devices, pod: PodRef) -> ResourceClaimInfo | None:
    """Return a claim to deallocate, without which the pod could go elsewhere; None if there is none.

    Its devices exclude nodes or did not become ready, and no other pod uses it. Also a claim whose devices did not
    become ready that is reserved for this pod and for others that wait as well: each is removed from it in turn, or
    they would keep it for one another forever.
    """
    for each in demand.allocated:
        claim = devices.claim(each.key)
        if claim is None or claim.allocation is None or claim.deleting:
            continue
        if each.reach is None and not each.binding_failed:
            continue
        if is_last(claim, devices, pod) or (each.binding_failed and devices.has_reserved(each.key, pod.uid)):
            return claim
    return None


def is_last(claim: ResourceClaimInfo, devices: Devices, pod: PodRef) -> bool:
    """Return whether the claim is reserved for no other pod."""
    return devices.reserved_for(claim.key) <= {pod.uid}


def without_allocation(claim: ResourceClaimInfo, version: str = "") -> Write:
    """Return a write that removes allocation and reservations, valid only at `version`; empty for the known one."""
    return Write(claim.key, True, False, _body(claim, version, status={"allocation": None, "reservedFor": None}))


def _consumer(pod: PodRef) -> dict[str, str]:
    return {"resource": "pods", "name": pod.name, "uid": pod.uid}


def _body(claim: ResourceClaimInfo, version: str, *, status: dict[str, Any] | None = None, **metadata: object) -> bytes:
    """Encode a patch of the claim, valid only at `version`; empty for the known one.

    The next write is valid at the version that this one results in, so this one must not skip any.
    """
    described = {"uid": claim.uid, "resourceVersion": version or claim.resource_version, **metadata}
    return _encode({"metadata": described} if status is None else {"metadata": described, "status": status})
