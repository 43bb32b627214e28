"""The single owner of devices: classes, slices and claims in their last known state, and assumptions about claims.

Single-threaded, like the ledger: called between awaits of one loop. The taken devices follow from the claims alone:
from the allocation that the watch has reported, or else from the assumed one. `changed` is called with the names of the
nodes whose answers may change; None means all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec

from ..state.batchinfo import GroupKey
from ..state.claimspec import ClaimSpec
from ..state.extended import CLASS_RESOURCE
from ..state.indexes import drop_entry
from ..state.podclaims import ClaimKey
from ..state.records import same, version_number, version_of
from .allocation import AllocatedDevices, Allocation, Use
from .assumed import UNWRITTEN, AssumedClaims
from .binding_conditions import BINDING_TIMEOUT
from .pool_index import PoolIndex
from .records import DeviceClassInfo, ResourceClaimInfo

#: Pods that a claim can be reserved for at a time (`ResourceClaimReservedForMaxSize`).
RESERVED_AT_MOST: Final = 256
#: Default of a `SearchBudget`, for queries about one node: about 20 ms. A step is one device that a search tries, about
#: 2 microseconds.
STEPS: Final = 10_000
#: Steps of a worker's turn, about 10 ms; other tasks run before its next one.
PORTION: Final = 5_000
#: Seconds after which a pod's searches end, as by default in `DynamicResourcesArgs`; for profiles without these.
FILTER_TIMEOUT: Final = 10.0
#: No limit.
_ENDLESS: Final = 1 << 62


def _nobody(_: Collection[str] | None) -> None:
    """Ignore changes; the default of `Devices(changed)`."""


class SearchBudget:
    """Steps that several searches share.

    An undecided search is resumed when there are more steps, and never counts as a refusal.
    """

    __slots__ = ("left",)

    def __init__(self, steps: int = STEPS) -> None:
        self.left = steps


class Devices:
    """Owns its tables, which only its methods change. Objects are looked up by name unless noted.

    `version` increases with changes of classes, which a pod's class is compiled from. Other changes are reported to
    `changed`, node by node, and by the stamps of `pools`.
    """

    def __init__(self, changed: Callable[[Collection[str] | None], None] = _nobody) -> None:
        self.changed = changed
        self.version = 0
        #: Unix seconds; set by the callers that have a clock, as decisions have none.
        self.now = 0.0
        #: Remaining steps of the searches of this turn; set by the worker pool. And the nodes for which they did not
        #: suffice, see `again`.
        self.budget = SearchBudget(_ENDLESS)
        self.undecided: set[str] = set()
        #: Timeouts by profile; see `filter_timeout` and `binding_timeout`.
        self.filter_timeouts: Mapping[str, float] = {}
        self.binding_timeouts: Mapping[str, float] = {}
        self.classes: dict[str, DeviceClassInfo] = {}
        self.claims: dict[ClaimKey, ResourceClaimInfo] = {}
        self.assumed = AssumedClaims()
        self.pools = PoolIndex(changed)
        #: Resource -> classes that name it as theirs.
        self._extended: dict[str, dict[str, None]] = {}
        #: UID of a pod -> claims that were created for its extended resources.
        self._made: dict[str, dict[ClaimKey, None]] = {}
        #: The same claims before they are created, by UID of the pod. Their keys are unique because they have no
        #: namespace.
        self._in_memory: dict[str, ResourceClaimInfo] = {}
        #: Caches: demand -> plan, of `plans.plan_of`; node -> slots, of `node_devices.devices_of`.
        self.plans: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self.node_devices: dict[str, Any] = {}

    # ---- queries

    def claim(self, key: ClaimKey) -> ResourceClaimInfo | None:
        return self.claims.get(key)

    def allocation(self, key: ClaimKey, group: GroupKey | None = None) -> AllocatedDevices | None:
        """Return the claim's allocation from the watch, or else the one that this scheduler has written.

        Members of the `group` that it was allocated for also get an unwritten one.
        """
        claim, assumed = self.claims.get(key), self.assumed.get(key)
        if self.is_deallocated(key):
            return None
        if claim is not None and claim.allocation is not None:
            return claim.allocation
        return assumed.allocation_for(group) if assumed is not None else None

    def is_pending(self, key: ClaimKey) -> bool:
        """Return whether an assumed allocation is unwritten, or a deallocation is not reported by the watch yet."""
        assumed = self.assumed.get(key)
        allocated = assumed is not None and assumed.allocation is not None and assumed.written < 0
        return allocated or self.is_deallocated(key)

    def is_deallocated(self, key: ClaimKey) -> bool:
        """Return whether this scheduler has deallocated it, which the watch has not reported yet.

        Until then its devices are not free.
        """
        assumed = self.assumed.get(key)
        return assumed is not None and assumed.deallocated >= 0

    def binding_failed(self, key: ClaimKey, profile: str) -> bool:
        """Return whether the devices of an allocated claim failed to become ready in time."""
        claim = self.claims.get(key)
        conditions = None if claim is None else claim.binding_conditions
        if conditions is None:
            return False
        return bool(conditions.failure) or conditions.timed_out(self.now, self.binding_timeout(profile))

    def filter_timeout(self, profile: str) -> float:
        """Return the seconds that a pod's searches may take; 0 for no limit."""
        return self.filter_timeouts.get(profile, FILTER_TIMEOUT)

    def binding_timeout(self, profile: str) -> float:
        """Return the seconds that devices may take to become ready."""
        return self.binding_timeouts.get(profile, BINDING_TIMEOUT)

    def reserved_for(self, key: ClaimKey) -> frozenset[str]:
        """Return the UIDs of the pods that may use it, including unwritten reservations."""
        claim, assumed = self.claims.get(key), self.assumed.get(key)
        seen = frozenset(claim.reserved_for) if claim is not None else frozenset()
        return seen - assumed.unreserved.keys() | assumed.holders.keys() if assumed is not None else seen

    def has_reserved(self, key: ClaimKey, holder: str) -> bool:
        """Return whether the API server has the claim reserved for the pod: unwritten reservations do not count."""
        claim, assumed = self.claims.get(key), self.assumed.get(key)
        if claim is None:
            return False
        if assumed is None:
            return holder in claim.reserved_for
        seen = holder in claim.reserved_for and holder not in assumed.unreserved
        return seen or assumed.holders.get(holder, UNWRITTEN) > UNWRITTEN

    def as_assumed(self, key: ClaimKey) -> ResourceClaimInfo | None:
        """Return the claim with its assumptions applied."""
        claim, assumed = self.claims.get(key), self.assumed.get(key)
        if claim is None or assumed is None:
            return claim
        seen = [each for each in claim.reserved_for if each not in assumed.unreserved]
        reserved = (*seen, *sorted(assumed.holders.keys() - set(seen)))
        allocation = None if self.is_deallocated(key) else claim.allocation or assumed.allocation
        return msgspec.structs.replace(claim, allocation=allocation, reserved_for=reserved)

    def is_overtaken(self, key: ClaimKey, allocated: AllocatedDevices, allocated_for: str | None = None) -> bool:
        """Return whether an allocation that the watch has not reported can no longer be made.

        Other clients that allocate from the same pools have been faster, or the driver no longer publishes a device. So
        too if it is no longer assumed, or for another pod than `allocated_for`, if that is given: the claim had an
        allocation in between, and the devices may have been taken since.
        """
        claim, assumed = self.claims.get(key), self.assumed.get(key)
        if claim is not None and claim.allocation is not None:
            return False
        if assumed is None or assumed.allocation != allocated or allocated_for not in (None, assumed.allocated_for):
            return True
        return not self.pools.are_free_but_for(allocated.uses)

    def is_unreserved(self, key: ClaimKey, holder: str) -> bool:
        """Return whether the pod was removed from its `reservedFor`, which the watch has not reported yet."""
        assumed = self.assumed.get(key)
        return assumed is not None and holder in assumed.unreserved

    def latest_version(self, key: ClaimKey) -> str:
        """Return the newest known version of the claim on the API server; empty if there is none."""
        claim, assumed = self.claims.get(key), self.assumed.get(key)
        if claim is None:
            return ""
        if assumed is None or assumed.latest <= version_of(claim):
            return claim.resource_version
        return str(assumed.latest)

    def class_of_resource(self, resource: str) -> DeviceClassInfo | None:
        """Return the newest class whose devices provide an extended resource."""
        names = self._extended.get(resource, ())
        if not names and resource.startswith(CLASS_RESOURCE):
            return self.classes.get(resource.removeprefix(CLASS_RESOURCE))
        found = sorted((self.classes[name] for name in names), key=lambda each: each.name)
        return max(found, key=lambda each: each.created, default=None)

    def stand_for(self, resources: Iterable[str]) -> bool:
        """Return whether devices of some class provide one of these extended resources."""
        return bool(self.classes) and any(self.class_of_resource(each) is not None for each in resources)

    def resources(self) -> Iterable[str]:
        """Yield all extended resources that devices provide."""
        yield from self._extended
        for name in self.classes:
            yield CLASS_RESOURCE + name

    def made_for(self, pod_uid: str) -> tuple[ResourceClaimInfo, ...]:
        """Return the claims created for a pod's extended resources; one at most, unless another client created some."""
        keys = self._made.get(pod_uid)
        return tuple(self.claims[key] for key in keys) if keys else ()

    # ---- changes from the watch; each returns whether it affects decisions

    def set_class(self, each: DeviceClassInfo) -> bool:
        old = self.classes.get(each.name)
        self.classes[each.name] = each
        if old is not None and same(each, old):
            return False
        self._name_resource(old, each)
        self.version += 1
        return True

    def delete_class(self, name: str) -> bool:
        old = self.classes.pop(name, None)
        if old is None:
            return False
        self._name_resource(old, None)
        self.version += 1
        return True

    def set_claim(self, claim: ResourceClaimInfo) -> bool:
        old = self.claims.get(claim.key)
        if old is not None and old.uid == claim.uid and version_of(claim) < version_of(old):
            return False
        self.claims[claim.key] = claim
        self._note_made(old, claim)
        self.assumed.seen(claim, version_of(claim))
        self._recount(claim.key)
        return old is None or not same(claim, old)

    def delete_claim(self, key: ClaimKey) -> bool:
        gone = self.claims.pop(key, None)
        self._note_made(gone, None)
        self.assumed.drop(key)
        self._recount(key)
        return gone is not None

    # ---- assumptions of decisions

    def assume(self, key: ClaimKey, allocation: Allocation | None, holder: str, group: GroupKey | None = None) -> bool:
        """Reserve a claim for a pod, by its UID; with an `allocation`, for a claim without one, also allocate it.

        `group` is that of the pod. Return false, with nothing changed, if that is no longer possible: the claim is
        deleted or being deleted, it has got or lost an allocation meanwhile, its devices are taken, or it has the most
        reservations.
        """
        claim = self.claims.get(key)
        if claim is None or claim.deleting:
            return False
        reserved = self.reserved_for(key)
        if len(reserved) >= RESERVED_AT_MOST and holder not in reserved:
            return False
        if allocation is None:
            if self.allocation(key, group) is None:
                return False
            self.assumed.assume(claim, None, holder)
            return True
        if self.allocation(key) is not None or self.is_pending(key):
            return False
        allocated = allocation.allocated
        if not self.pools.are_free(allocated.uses):
            return False
        self.assumed.assume(claim, allocated, holder, group)
        self._recount(key)
        return True

    def assume_in_memory(self, holder: str, spec: ClaimSpec, allocation: Allocation) -> bool:
        """Take devices for a claim to be created for a pod. Return false, with nothing changed, if they are taken."""
        allocated = allocation.allocated
        if holder in self._in_memory or not self.pools.are_free(allocated.uses):
            return False
        in_memory = self._in_memory[holder] = ResourceClaimInfo(
            name=holder,
            uid="",
            resource_version="",
            spec=spec,
            allocation=allocated,
            reserved_for=(holder,),
            deleting=False,
            controller=holder,
            extended=True,
        )
        self._recount(in_memory.key)
        return True

    def replace_in_memory(self, key: ClaimKey, allocation: Allocation, holder: str) -> bool:
        """Assume for the created claim what was assumed for `holder` in memory. Returns as `assume`."""
        self._drop_in_memory(holder)
        return self.assume(key, allocation, holder)

    def written(self, key: ClaimKey, holder: str, resource_version: str) -> None:
        """Record that the API server has the pod's assumptions about the claim, at this version."""
        claim = self.claims.get(key)
        version = version_number(resource_version)
        self.assumed.written(key, holder, version)
        if claim is not None and version_of(claim) >= version:
            self.assumed.seen(claim, version_of(claim))
            self._recount(key)

    def deallocated(self, key: ClaimKey, resource_version: str) -> None:
        """Record that the API server has the claim without an allocation, at this version."""
        claim = self.claims.get(key)
        version = version_number(resource_version)
        if claim is not None and version_of(claim) < version:
            self.assumed.deallocated(claim, version)

    def unreserved(self, key: ClaimKey, holder: str, resource_version: str) -> None:
        """Record that the API server no longer has the claim reserved for this pod, at this version."""
        claim = self.claims.get(key)
        version = version_number(resource_version)
        if claim is not None and version_of(claim) < version:
            self.assumed.unreserved(claim, holder, version)

    def forget(self, holder: str) -> list[tuple[ResourceClaimInfo, ResourceClaimInfo]]:
        """Undo unwritten assumptions for a pod.

        Return the claims that this changes, before and after, in the form of watch events: other pods may have been
        refused because of them.
        """
        before = {key: self.as_assumed(key) for key in self.assumed.held(holder)}
        changed = []
        for key in self.assumed.forget(holder):
            self._recount(key)
            old, new = before[key], self.claims.get(key)
            if old is not None and new is not None:
                changed.append((old, self.as_assumed(key) or new))
        if (in_memory := self._drop_in_memory(holder)) is not None:
            changed.append((in_memory, msgspec.structs.replace(in_memory, allocation=None, reserved_for=())))
        return changed

    def again(self) -> bool:
        """Report the undecided nodes as changed, so that they are asked about again. Return whether there are any."""
        names, self.undecided = self.undecided, set()
        if names:
            self.changed(names)
        return bool(names)

    def forget_node(self, name: str) -> None:
        """Drop all cached results for a deleted node."""
        self.node_devices.pop(name, None)
        for plan in list(self.plans.values()):
            plan.answers.pop(name, None)

    # ---- inside

    def _drop_in_memory(self, holder: str) -> ResourceClaimInfo | None:
        in_memory = self._in_memory.pop(holder, None)
        if in_memory is not None:
            self._recount(in_memory.key)
        return in_memory

    def _note_made(self, old: ResourceClaimInfo | None, new: ResourceClaimInfo | None) -> None:
        if old is not None and old.extended and old.controller:
            drop_entry(self._made, old.controller, old.key)
        if new is not None and new.extended and new.controller:
            self._made.setdefault(new.controller, {})[new.key] = None

    def _name_resource(self, old: DeviceClassInfo | None, new: DeviceClassInfo | None) -> None:
        if old is not None and old.extended_resource:
            drop_entry(self._extended, old.extended_resource, old.name)
        if new is not None and new.extended_resource:
            self._extended.setdefault(new.extended_resource, {})[new.name] = None

    def _taken_by(self, key: ClaimKey) -> tuple[Use, ...]:
        claim, assumed = self.claims.get(key), self.assumed.get(key)
        if claim is not None and claim.allocation is not None:
            return claim.allocation.uses
        if assumed is not None and assumed.allocation is not None:
            return assumed.allocation.uses
        in_memory = self._in_memory.get(key[1]) if not key[0] else None
        return in_memory.allocation.uses if in_memory is not None and in_memory.allocation else ()

    def _recount(self, key: ClaimKey) -> None:
        """Update the claim's devices in the pools."""
        self.pools.take(key, self._taken_by(key))

    def check(self) -> list[str]:
        """Return the contradictions of the invariants; empty if all hold. Costs a pass over everything."""
        known = {*self.claims, *(in_memory.key for in_memory in self._in_memory.values())}
        problems = self.assumed.check()
        problems += self.pools.check({key: self._taken_by(key) for key in known})
        problems += [
            f"claim {key} is reserved for {len(self.reserved_for(key))}"
            for key in self.claims
            if len(self.reserved_for(key)) > RESERVED_AT_MOST
        ]
        return problems
