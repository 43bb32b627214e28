"""The one owner of devices: classes, slices and claims as last seen, and what our decisions have assumed of claims.

Single-threaded, like the ledger: called between awaits of one loop. What of a device is taken follows from the claims
alone: from the allocation that the watch has shown, or else from the one that a decision has assumed. `changed`
is called with a change, with the names of the nodes for which an answer may be another one; None is for all of them.
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
from .records import ClaimInfo, DeviceClassInfo

#: Pods that a claim can be reserved for at a time (`ResourceClaimReservedForMaxSize`).
RESERVED_AT_MOST: Final = 256
#: Default of a `SearchBudget`, for questions about one node: some 20 ms. A step is one device that a search tries, some
#: 2 microseconds.
STEPS: Final = 10_000
#: Steps of a worker's turn, some 10 ms; other tasks run before its next one.
PORTION: Final = 5_000
#: Seconds after which a pod's searches are given up, as by default in `DynamicResourcesArgs`; for profiles without
#: these.
FILTER_TIMEOUT: Final = 10.0
#: No limit.
_ENDLESS: Final = 1 << 62


def _nobody(_: Collection[str] | None) -> None:
    """Default of `Devices(changed)`."""


class SearchBudget:
    """Steps that several searches have together. What is undecided when none is left is gone on with when there are
    more, and never taken for a refusal."""

    __slots__ = ("left",)

    def __init__(self, steps: int = STEPS) -> None:
        self.left = steps


class Devices:
    """Owner of its tables, which only its methods change. Objects are looked up by name unless said otherwise.

    `version` rises with the classes, which a pod's class is compiled from. What else changes is passed to `changed`,
    node by node, and by the stamps of `pools`.
    """

    def __init__(self, changed: Callable[[Collection[str] | None], None] = _nobody) -> None:
        self.changed = changed
        self.version = 0
        #: Unix seconds; set by the callers that have a clock, as decisions have none.
        self.now = 0.0
        #: Steps left to the searches of this turn; set by the worker pool. And the nodes for which they did not
        #: suffice, see `again`.
        self.budget = SearchBudget(_ENDLESS)
        self.undecided: set[str] = set()
        #: By profile; see `filter_timeout` and `binding_timeout`.
        self.filter_timeouts: Mapping[str, float] = {}
        self.binding_timeouts: Mapping[str, float] = {}
        self.classes: dict[str, DeviceClassInfo] = {}
        self.claims: dict[ClaimKey, ClaimInfo] = {}
        self.assumed = AssumedClaims()
        self.pools = PoolIndex(changed)
        #: Resource -> classes that name it as theirs.
        self._extended: dict[str, dict[str, None]] = {}
        #: UID of a pod -> claims that were made for its extended resources.
        self._made: dict[str, dict[ClaimKey, None]] = {}
        #: The same claims before they are made, by UID of the pod. Their keys have no namespace, as no other's.
        self._in_memory: dict[str, ClaimInfo] = {}
        #: Caches: demand -> plan, of `plans.plan_of`; node -> slots, of `node_devices.devices_of`.
        self.plans: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self.node_devices: dict[str, Any] = {}

    # ---- questions

    def claim(self, key: ClaimKey) -> ClaimInfo | None:
        return self.claims.get(key)

    def allocation(self, key: ClaimKey, group: GroupKey | None = None) -> AllocatedDevices | None:
        """What the claim has as the watch shows it, or else as this scheduler has written it; to members of the
        `group` that it was allocated for, also what is about to be written."""
        claim, assumed = self.claims.get(key), self.assumed.get(key)
        if self.is_deallocated(key):
            return None
        if claim is not None and claim.allocation is not None:
            return claim.allocation
        return assumed.allocation_for(group) if assumed is not None else None

    def is_pending(self, key: ClaimKey) -> bool:
        """Whether it is assumed to be allocated and that is not written yet, or was deallocated and that is not seen
        yet."""
        assumed = self.assumed.get(key)
        allocated = assumed is not None and assumed.allocation is not None and assumed.written < 0
        return allocated or self.is_deallocated(key)

    def is_deallocated(self, key: ClaimKey) -> bool:
        """Whether this scheduler has deallocated it, which the watch has not shown yet. Until then its devices are not
        free."""
        assumed = self.assumed.get(key)
        return assumed is not None and assumed.deallocated >= 0

    def binding_failed(self, key: ClaimKey, profile: str) -> bool:
        """Whether the devices of an allocated claim did not become ready, or not in time."""
        claim = self.claims.get(key)
        conditions = None if claim is None else claim.binding_conditions
        if conditions is None:
            return False
        return bool(conditions.failure) or conditions.timed_out(self.now, self.binding_timeout(profile))

    def filter_timeout(self, profile: str) -> float:
        """Seconds for which a pod's searches may be gone on with; 0 for no end."""
        return self.filter_timeouts.get(profile, FILTER_TIMEOUT)

    def binding_timeout(self, profile: str) -> float:
        """Seconds that devices may take to become ready."""
        return self.binding_timeouts.get(profile, BINDING_TIMEOUT)

    def reserved_for(self, key: ClaimKey) -> frozenset[str]:
        """UIDs of the pods that may use it, or will as soon as it is written."""
        claim, assumed = self.claims.get(key), self.assumed.get(key)
        seen = frozenset(claim.reserved_for) if claim is not None else frozenset()
        return seen - assumed.unreserved.keys() | assumed.holders.keys() if assumed is not None else seen

    def has_reserved(self, key: ClaimKey, holder: str) -> bool:
        """Whether the claim is reserved for the pod, as the API server has it: a reservation that is not written does
        not count."""
        claim, assumed = self.claims.get(key), self.assumed.get(key)
        if claim is None:
            return False
        if assumed is None:
            return holder in claim.reserved_for
        seen = holder in claim.reserved_for and holder not in assumed.unreserved
        return seen or assumed.holders.get(holder, UNWRITTEN) > UNWRITTEN

    def as_assumed(self, key: ClaimKey) -> ClaimInfo | None:
        """The claim with what is assumed of it."""
        claim, assumed = self.claims.get(key), self.assumed.get(key)
        if claim is None or assumed is None:
            return claim
        seen = [each for each in claim.reserved_for if each not in assumed.unreserved]
        reserved = (*seen, *sorted(assumed.holders.keys() - set(seen)))
        allocation = None if self.is_deallocated(key) else claim.allocation or assumed.allocation
        return msgspec.structs.replace(claim, allocation=allocation, reserved_for=reserved)

    def is_overtaken(
        self, key: ClaimKey, allocated: AllocatedDevices, allocated_for: str | None = None
    ) -> bool:
        """Whether an allocation of the claim, which the watch does not show, could no longer be made: others, who
        allocate from the same pools, have been faster, or the driver no longer publishes a device. So too if it is no
        longer assumed, or for another pod than `allocated_for`, if that is given: the claim had an allocation in
        between, and the devices may have been taken since.
        """
        claim, assumed = self.claims.get(key), self.assumed.get(key)
        if claim is not None and claim.allocation is not None:
            return False
        if (
            assumed is None
            or assumed.allocation != allocated
            or allocated_for not in (None, assumed.allocated_for)
        ):
            return True
        return not self.pools.are_free_but_for(allocated.uses)

    def is_unreserved(self, key: ClaimKey, holder: str) -> bool:
        """Whether the pod was taken out of its `reservedFor`, which the watch has not shown yet."""
        assumed = self.assumed.get(key)
        return assumed is not None and holder in assumed.unreserved

    def latest_version(self, key: ClaimKey) -> str:
        """The newest version of the claim that is known to be on the API server; empty if there is none."""
        claim, assumed = self.claims.get(key), self.assumed.get(key)
        if claim is None:
            return ""
        if assumed is None or assumed.latest <= version_of(claim):
            return claim.resource_version
        return str(assumed.latest)

    def class_of_resource(self, resource: str) -> DeviceClassInfo | None:
        """The class whose devices are what an extended resource means; of several the newest."""
        names = self._extended.get(resource, ())
        if not names and resource.startswith(CLASS_RESOURCE):
            return self.classes.get(resource.removeprefix(CLASS_RESOURCE))
        found = sorted((self.classes[name] for name in names), key=lambda each: each.name)
        return max(found, key=lambda each: each.created, default=None)

    def stand_for(self, resources: Iterable[str]) -> bool:
        """Whether devices of some class are what one of these extended resources means."""
        return bool(self.classes) and any(self.class_of_resource(each) is not None for each in resources)

    def resources(self) -> Iterable[str]:
        """All extended resources that devices stand for."""
        yield from self._extended
        for name in self.classes:
            yield CLASS_RESOURCE + name

    def made_for(self, pod_uid: str) -> tuple[ClaimInfo, ...]:
        """The claims that were made for a pod's extended resources; one at most, unless another client made some."""
        keys = self._made.get(pod_uid)
        return tuple(self.claims[key] for key in keys) if keys else ()

    # ---- what the watch tells; each returns whether a decision can see the change

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

    def set_claim(self, claim: ClaimInfo) -> bool:
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

    # ---- what decisions assume

    def assume(
        self, key: ClaimKey, allocation: Allocation | None, holder: str, group: GroupKey | None = None
    ) -> bool:
        """Reserve a claim for a pod, by its UID; with an `allocation`, for a claim that has none, allocate it, too.
        `group`: that of the pod.

        False, and nothing is changed, if that can no longer be: the claim is gone or about to be, it has got an
        allocation meanwhile or lost it, its devices are taken, or it is reserved for as many as may be.
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
        """Take devices for a claim that is to be made for a pod. False, and nothing is changed, if they are taken."""
        allocated = allocation.allocated
        if holder in self._in_memory or not self.pools.are_free(allocated.uses):
            return False
        in_memory = self._in_memory[holder] = ClaimInfo(
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
        """The claim has been made: what was assumed for `holder` in memory is assumed for it. As `assume`."""
        self._drop_in_memory(holder)
        return self.assume(key, allocation, holder)

    def written(self, key: ClaimKey, holder: str, resource_version: str) -> None:
        """The API server has what was assumed of the claim for this pod, at this version."""
        claim = self.claims.get(key)
        version = version_number(resource_version)
        self.assumed.written(key, holder, version)
        if claim is not None and version_of(claim) >= version:
            self.assumed.seen(claim, version_of(claim))
            self._recount(key)

    def deallocated(self, key: ClaimKey, resource_version: str) -> None:
        """The API server has the claim without an allocation, at this version."""
        claim = self.claims.get(key)
        version = version_number(resource_version)
        if claim is not None and version_of(claim) < version:
            self.assumed.deallocated(claim, version)

    def unreserved(self, key: ClaimKey, holder: str, resource_version: str) -> None:
        """The API server has the claim no longer reserved for this pod, at this version."""
        claim = self.claims.get(key)
        version = version_number(resource_version)
        if claim is not None and version_of(claim) < version:
            self.assumed.unreserved(claim, holder, version)

    def forget(self, holder: str) -> list[tuple[ClaimInfo, ClaimInfo]]:
        """Undo what is assumed for a pod and was not written. Returns the claims that are otherwise by that, before
        and after, as a watch would have shown them: others may have been refused because of it."""
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
        """Have the nodes asked about again that are undecided. Whether there are any."""
        names, self.undecided = self.undecided, set()
        if names:
            self.changed(names)
        return bool(names)

    def forget_node(self, name: str) -> None:
        """The node is gone: nothing is kept that was worked out for it."""
        self.node_devices.pop(name, None)
        for plan in list(self.plans.values()):
            plan.answers.pop(name, None)

    # ---- inside

    def _drop_in_memory(self, holder: str) -> ClaimInfo | None:
        in_memory = self._in_memory.pop(holder, None)
        if in_memory is not None:
            self._recount(in_memory.key)
        return in_memory

    def _note_made(self, old: ClaimInfo | None, new: ClaimInfo | None) -> None:
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
        """Have the pools count what the claim has."""
        self.pools.take(key, self._taken_by(key))

    def check(self) -> list[str]:
        """What contradicts the invariants; empty when all hold. Costs a pass over everything."""
        known = {*self.claims, *(in_memory.key for in_memory in self._in_memory.values())}
        problems = self.assumed.check()
        problems += self.pools.check({key: self._taken_by(key) for key in known})
        problems += [
            f"claim {key} is reserved for {len(self.reserved_for(key))}"
            for key in self.claims
            if len(self.reserved_for(key)) > RESERVED_AT_MOST
        ]
        return problems
