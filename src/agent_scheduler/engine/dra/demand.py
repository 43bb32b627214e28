"""The current demand of a pod's claims: its `podclaims.ClaimDemand`.

A claim with an allocation is in it with the nodes where it can be used. A claim that excludes any decision makes it a
`problem`, in kube-scheduler's words.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from weakref import WeakValueDictionary

import msgspec

from ..state.batchinfo import GroupKey
from ..state.extended import ExtendedNeeds
from ..state.podclaims import AllocatedClaim, ClaimDemand, ClaimKey, ClaimToAllocate, PodClaim, PodRef
from ..state.podinfo import PodInfo
from .catalogue import RESERVED_AT_MOST, Devices
from .records import ResourceClaimInfo

_NOBODY = PodRef()
_encode = msgspec.json.Encoder().encode
_interned: WeakValueDictionary[Hashable, ClaimDemand] = WeakValueDictionary()


def demand(
    pod_claims: Collection[PodClaim],
    devices: Devices,
    *,
    pod: PodRef | None = None,
    extended: ExtendedNeeds | None = None,
    left_over: tuple[ClaimKey, ...] = (),
    profile: str = "",
    group: GroupKey | None = None,
) -> ClaimDemand:
    """Return the current demand of a pod with these claims; the same object as long as it is unchanged.

    Members of a `group` share a claim before its allocation is written: they are placed together, and none of them can
    be before the others (kube-scheduler: `inFlightAllocationSharers`).
    """
    unallocated: list[ClaimToAllocate] = []
    allocated: list[AllocatedClaim] = []
    problem = ""
    for claim in claims_of(pod_claims):
        known = devices.claim(claim.claim) if claim.claim is not None else None
        problem = _problem(claim, known, devices, pod or _NOBODY, group)
        if problem or known is None:
            break
        if (allocation := devices.allocation(known.key, group)) is not None:
            allocated.append(AllocatedClaim(known.key, allocation.reach, devices.binding_failed(known.key, profile)))
        else:
            unallocated.append(ClaimToAllocate(claim.name, known.spec))
    if problem:
        unallocated, allocated, extended, left_over = [], [], None, ()
    where: tuple[Hashable, ...] = ()
    if allocated:
        # A selector has lists and so no hash; equal ones have equal bytes.
        where = tuple(
            (each.key, each.reach and _encode(each.reach.selector), each.binding_failed) for each in allocated
        )
    key = (tuple(unallocated), where, problem, extended, left_over)
    found = _interned.get(key)
    if found is None:
        found = _interned[key] = ClaimDemand(tuple(unallocated), tuple(allocated), problem, extended, left_over)
    return found


def demand_of(pod: PodInfo, devices: Devices) -> ClaimDemand | None:
    """Return the current demand of a pod for devices; None if it has none."""
    extended = pod.extended
    left_over: tuple[ClaimKey, ...] = ()
    if extended is not None:
        left_over = tuple(each.key for each in devices.made_for(pod.uid))
        if not devices.stand_for(extended.resources):
            extended = None
    if not (pod.claims or extended or left_over):
        return None
    return demand(
        pod.claims,
        devices,
        pod=pod.ref,
        extended=extended,
        left_over=left_over,
        profile=pod.scheduler_name,
        group=pod.group,
    )


def claims_of(pod_claims: Collection[PodClaim]) -> Collection[PodClaim]:
    """Return the claims without duplicates: a pod may refer to one under several names."""
    if len(pod_claims) < 2:
        return pod_claims
    found: dict[object, PodClaim] = {}
    for claim in pod_claims:
        found.setdefault(claim.claim or claim.name, claim)
    return list(found.values())


def to_allocate(
    pod_claims: Collection[PodClaim], devices: Devices, group: GroupKey | None = None
) -> list[ResourceClaimInfo]:
    """Return the claims that the allocations for the pod's `ClaimDemand` are for, in their order."""
    return [
        known
        for claim in claims_of(pod_claims)
        if claim.claim is not None
        and (known := devices.claim(claim.claim)) is not None
        and devices.allocation(known.key, group) is None
    ]


def missing(pod_claims: Collection[PodClaim], devices: Devices, pod: PodRef) -> str:
    """Return the reason why the pod need not be tried: a claim is missing or unusable. Empty if there is no reason."""
    for claim in pod_claims:
        known = devices.claim(claim.claim) if claim.claim is not None else None
        if reason := _missing(claim, known, pod):
            return reason
    return ""


def _missing(claim: PodClaim, known: ResourceClaimInfo | None, pod: PodRef) -> str:
    if claim.claim is None:
        return f'pod "{pod.namespace}/{pod.name}": ResourceClaim not created yet'
    namespace, name = claim.claim
    if known is None:
        return f'resourceclaim.resource.k8s.io "{name}" not found'
    if known.deleting:
        return f'resourceclaim "{name}" is being deleted'
    if claim.must_be_owned_by and known.controller != claim.must_be_owned_by:
        return f"ResourceClaim {namespace}/{name} was not created for Pod {pod.namespace}/{pod.name} (Pod is not owner)"
    return ""


def _problem(
    claim: PodClaim, known: ResourceClaimInfo | None, devices: Devices, pod: PodRef, group: GroupKey | None
) -> str:
    reason = _missing(claim, known, pod)
    if reason or known is None:
        return reason
    namespace, name = known.key
    if known.error:
        return f"resourceclaim {namespace}/{name}: {known.error}"
    if known.allocation is None and devices.assumed.get(known.key) is None:
        # The usual case.
        return _unreadable(known)
    if devices.allocation(known.key, group) is not None:
        reserved = devices.reserved_for(known.key)
        return "resourceclaim in use" if len(reserved) >= RESERVED_AT_MOST and pod.uid not in reserved else ""
    if devices.is_deallocated(known.key):
        return f"resource claim {namespace}/{name} is in the process of being deallocated"
    if devices.is_pending(known.key):
        return f"resource claim {namespace}/{name} is in the process of being allocated"
    return _unreadable(known)


def _unreadable(known: ResourceClaimInfo) -> str:
    return f"resource claim {known.namespace}/{known.name}, {known.spec.error}" if known.spec.error else ""
