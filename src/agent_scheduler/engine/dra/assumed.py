"""Decisions about claims that the watch has not reported yet: allocations, and reservations for pods.

    assume ──> written (the API server accepted it) ──> dropped when the watch reports that version or a newer one
       └─────> forget (the bind failed before the write)

Before an allocation is written the claim may change in irrelevant ways (above all, by the finalizer that has to be
added first), so a reported claim without an allocation ends nothing that has not been written. Written changes stay
assumed until the watch reports them, even if the attempt is forgotten. So does the removal of a pod from `reservedFor`,
or of an allocation, once the API server has accepted it.

`volumes.assume_cache` assumes one value per object. A claim has several assumptions at once, each with its own version.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..state.batchinfo import GroupKey
from ..state.indexes import drop_entry
from ..state.podclaims import ClaimKey
from .allocation import AllocatedDevices
from .records import ResourceClaimInfo

#: Not written yet.
UNWRITTEN = -1


@dataclass(slots=True, eq=False)
class AssumedClaim:
    """The assumptions about the claim with this `uid`."""

    uid: str
    #: None: the claim was allocated before, and only reservations are assumed.
    allocation: AllocatedDevices | None = None
    #: The pod for which it was allocated, and the group of that pod.
    allocated_for: str = ""
    group: GroupKey | None = None
    #: The version that has the allocation.
    written: int = UNWRITTEN
    #: The version that no longer has an allocation.
    deallocated: int = UNWRITTEN
    #: UID of a pod -> the version that has its reservation.
    holders: dict[str, int] = field(default_factory=dict)
    #: UID of a pod -> the version that no longer has its reservation.
    unreserved: dict[str, int] = field(default_factory=dict)
    #: Pods for which anything is assumed about it.
    known: set[str] = field(default_factory=set)

    def allocation_for(self, group: GroupKey | None) -> AllocatedDevices | None:
        """Return the allocation that members of this group, or pods of none, may use."""
        shared = group is not None and group == self.group
        return self.allocation if shared or self.written > UNWRITTEN else None

    @property
    def is_empty(self) -> bool:
        nothing = self.allocation is None and self.deallocated == UNWRITTEN
        return nothing and not self.holders and not self.unreserved

    @property
    def latest(self) -> int:
        """The newest version that is known to be on the API server and not reported by the watch."""
        return max(self.written, self.deallocated, *self.holders.values(), *self.unreserved.values())


class AssumedClaims:
    """Assumptions by claim. Invariant: an entry is not empty, and its pods are those that `held` names for it."""

    def __init__(self) -> None:
        self._claims: dict[ClaimKey, AssumedClaim] = {}
        self._held: dict[str, dict[ClaimKey, None]] = {}

    def __len__(self) -> int:
        return len(self._claims)

    def get(self, key: ClaimKey) -> AssumedClaim | None:
        return self._claims.get(key)

    def is_about_to_have(self, key: ClaimKey, allocation: AllocatedDevices) -> bool:
        """Return whether this is to be written as the claim's allocation, and is not yet."""
        found = self._claims.get(key)
        return found is not None and found.allocation == allocation and found.written == UNWRITTEN

    def held(self, holder: str) -> tuple[ClaimKey, ...]:
        """Return the claims with assumptions for this pod."""
        return tuple(self._held.get(holder, ()))

    def assume(
        self, claim: ResourceClaimInfo, allocation: AllocatedDevices | None, holder: str, group: GroupKey | None = None
    ) -> None:
        key = claim.key
        found = self._claims.get(key)
        if found is None:
            found = self._claims[key] = AssumedClaim(claim.uid)
        if allocation is not None:
            assert found.allocation is None, "a claim is allocated once"
            found.allocation, found.allocated_for, found.written = allocation, holder, UNWRITTEN
            found.group = group
        if holder not in claim.reserved_for or holder in found.unreserved:
            found.holders.setdefault(holder, UNWRITTEN)
        found.known.add(holder)
        self._held.setdefault(holder, {})[key] = None
        self._tidy(key, found)

    def written(self, key: ClaimKey, holder: str, version: int) -> None:
        """Record that the API server has the pod's assumptions about the claim, at this version."""
        found = self._claims.get(key)
        if found is None:
            return
        if found.allocation is not None and found.allocated_for == holder:
            found.written = max(found.written, version)
        if holder in found.holders:
            found.holders[holder] = max(found.holders[holder], version)

    def unreserved(self, claim: ResourceClaimInfo, holder: str, version: int) -> None:
        """Record that the API server no longer has the pod's reservation, at this version, not yet reported."""
        found = self._claims.get(claim.key)
        if found is None:
            found = self._claims[claim.key] = AssumedClaim(claim.uid)
        found.holders.pop(holder, None)
        found.unreserved[holder] = version
        self._tidy(claim.key, found)

    def deallocated(self, claim: ResourceClaimInfo, version: int) -> None:
        """Record that the API server no longer has an allocation, at this version, not yet reported."""
        self._claims.setdefault(claim.key, AssumedClaim(claim.uid)).deallocated = version

    def seen(self, claim: ResourceClaimInfo, version: int) -> None:
        """Handle the claim from the watch, at this version."""
        found = self._claims.get(claim.key)
        if found is None:
            return
        if found.uid != claim.uid:
            self.drop(claim.key)
            return
        if claim.allocation is not None or UNWRITTEN < found.written <= version:
            found.allocation = None
        if found.deallocated <= version:
            found.deallocated = UNWRITTEN
        for holder, gone in list(found.unreserved.items()):
            if gone <= version:
                del found.unreserved[holder]
        shown = set(claim.reserved_for) - found.unreserved.keys()
        for holder, written in list(found.holders.items()):
            if holder in shown or UNWRITTEN < written <= version:
                del found.holders[holder]
        self._tidy(claim.key, found)

    def forget(self, holder: str) -> list[ClaimKey]:
        """Undo unwritten assumptions for the pod. Return the claims that this changes."""
        undone = []
        for key in self.held(holder):
            found = self._claims[key]
            changed = False
            if found.allocation is not None and found.allocated_for == holder and found.written == UNWRITTEN:
                found.allocation = None
                changed = True
            if found.holders.get(holder) == UNWRITTEN:
                del found.holders[holder]
                changed = True
            if changed:
                undone.append(key)
            self._tidy(key, found)
        return undone

    def drop(self, key: ClaimKey) -> None:
        """Drop the assumptions about a deleted claim."""
        found = self._claims.pop(key, None)
        if found is not None:
            for holder in found.known:
                drop_entry(self._held, holder, key)

    def _tidy(self, key: ClaimKey, found: AssumedClaim) -> None:
        for holder in found.known - found.holders.keys():
            if found.allocation is None or found.allocated_for != holder:
                found.known.discard(holder)
                drop_entry(self._held, holder, key)
        if found.is_empty:
            self._claims.pop(key, None)

    def check(self) -> list[str]:
        """Return the contradictions of the invariant."""
        problems = []
        for key, found in self._claims.items():
            if found.is_empty:
                problems.append(f"{key} is kept though nothing is assumed of it")
            problems += [
                f"{holder} does not know that it holds {key}"
                for holder in found.known
                if key not in self._held.get(holder, ())
            ]
        for holder, keys in self._held.items():
            problems += [f"{holder} holds {key}, which is not assumed" for key in keys if key not in self._claims]
        return problems
