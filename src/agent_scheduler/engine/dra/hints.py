"""The events that may help pods refused by DynamicResources, with hints for each pod (KEP-4247).

A pod waits for its own claims, or for devices. Its claims are found by their names. For devices an event is evaluated
for one pod of those with the same demand, as precisely as is cheap: a node by asking the allocator about it, a slice by
the selectors of the pod, a class by its name. Where kube-scheduler wakes all pods (nodes, classes, slices) or none (a
deleted slice, which may complete a pool or free a request for all devices), these hints are more precise. They read the
current state; changes since the event have an event of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from ..events.events import ActionType, ClusterEvent, Resource
from ..events.hints import ClusterEventWithHint, QueueingHint
from ..events.prehints import ALL_PODS, ANYWAY, AllPods, ByKeys, Key, PodIndex, own_pod
from ..state.nodeinfo import NodeInfo
from ..state.podclaims import ClaimDemand
from ..state.podinfo import PodInfo
from ..state.records import same
from .allocator import CannotAllocate, Undecided, answer
from .catalogue import Devices, SearchBudget
from .demand import demand, demand_of, missing
from .devices import DeviceInfo
from .plans import NodeRefused, plan_of
from .records import DeviceClassInfo, ResourceClaimInfo, SliceInfo

_ADD_OR_UPDATE = ActionType.ADD | ActionType.UPDATE
_ALWAYS = ActionType.ADD | ActionType.UPDATE | ActionType.DELETE
_NODE = ActionType.ADD | ActionType.UPDATE_NODE_LABEL | ActionType.UPDATE_NODE_ALLOCATABLE


class Hints:
    """The hints of one plugin. Without `devices` every event wakes every pod."""

    def __init__(self, devices: Devices | None) -> None:
        self._devices = devices
        self._by_claim = PodIndex(keys_of=_claims_of)
        self._by_demand = PodIndex(keys_of=self._classes_of, shared=self._demand_of, volatile=True)

    def events(self) -> tuple[ClusterEventWithHint, ...]:
        every_pod = ByKeys(self._by_demand, once=True)
        return (
            _on(Resource.RESOURCE_CLAIM, _ALWAYS, self._claim, ByKeys(self._by_claim, _of_claim)),
            _on(Resource.TARGET_POD, ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM, self._own_claims, own_pod),
            _on(Resource.DEVICE_CLASS, _ADD_OR_UPDATE, self._class, ByKeys(self._by_demand, _of_class, once=True)),
            _on(Resource.RESOURCE_SLICE, _ALWAYS, self._slice, every_pod),
            _on(Resource.NODE, _NODE, self._node, every_pod),
        )

    # ---- hints; each returns whether the event may help

    def _claim(self, pod: PodInfo, old: ResourceClaimInfo | None, new: ResourceClaimInfo | None) -> bool:
        """Return whether devices became free for all pods, or a claim of the pod has changed."""
        devices = self._devices
        if devices is None:
            return True
        if missing(pod.claims, devices, pod.ref):
            return False
        if frees(old, new) or (new is None and old is not None and _made_for(old) == pod.uid):
            return True
        if new is None or new.key not in {claim.claim for claim in pod.claims}:
            return False
        return old is None or not same(new, old)

    def _own_claims(self, pod: PodInfo, old: object, new: PodInfo) -> bool:
        devices = self._devices
        return new.uid == pod.uid and (devices is None or not missing(new.claims, devices, new.ref))

    def _class(self, pod: PodInfo, old: DeviceClassInfo | None, new: DeviceClassInfo) -> bool:
        """Return whether the pod requests devices of this class, by its name or by a former or current resource."""
        devices = self._devices
        if devices is None:
            return True
        if old is not None and same(new, old):
            return False
        if pod.extended is not None and not pod.extended.resources.isdisjoint(_resources_of(old, new)):
            return True
        return new.name in _class_names(self._demand(pod, devices))

    def _slice(self, pod: PodInfo, old: SliceInfo | None, new: SliceInfo | None) -> bool:
        """Return whether the pool has or had a device that the pod requests, or that cannot be checked."""
        devices = self._devices
        if devices is None or (old is not None and old.error) or (new is not None and new.error):
            return True
        wanted = self._demand(pod, devices)
        if wanted.extended is not None:
            return True
        requests = [each for claim in plan_of(wanted, devices).claims for each in claim.subrequests]
        if any(request.option.takes_all for request in requests):
            return True
        seen = {id(each.facts): each for one in (old, new) if one is not None for each in _of_pool(one, devices)}
        for each in seen.values():
            for request in requests:
                try:
                    if request.selects(each.facts):
                        return True
                except NodeRefused:
                    return True
        return False

    def _node(self, pod: PodInfo, old: NodeInfo | None, new: NodeInfo) -> bool:
        """Return whether the pod's claims can be satisfied on the node."""
        devices = self._devices
        if devices is None:
            return True
        wanted = self._demand(pod, devices)
        if old is not None and old.labels == new.labels and wanted.extended is None:
            # Only its amounts have changed.
            return False
        found = answer(wanted, devices, new, SearchBudget())
        return isinstance(found, Undecided) or not isinstance(found, CannotAllocate)

    # ---- keys of pods

    def _demand_of(self, pod: PodInfo) -> Hashable:
        devices = self._devices
        if devices is None:
            return pod.uid
        wanted = self._demand(pod, devices)
        # Pods may request resources that no devices provide yet; these may later be provided by different devices.
        return wanted if pod.extended is None else (pod.extended, wanted)

    def _classes_of(self, pod: PodInfo) -> Iterable[Key]:
        devices = self._devices
        if devices is None:
            return (ANYWAY,)
        keys: list[Key] = [("class", name) for name in _class_names(self._demand(pod, devices))]
        if pod.extended is not None:
            # Includes resources that no devices provide now.
            keys += [("resource", name) for name in pod.extended.resources]
        return keys

    @staticmethod
    def _demand(pod: PodInfo, devices: Devices) -> ClaimDemand:
        return demand_of(pod, devices) or demand((), devices)


def frees(old: ResourceClaimInfo | None, new: ResourceClaimInfo | None) -> bool:
    """Return whether the claim had devices that it no longer has."""
    if old is None or old.allocation is None:
        return False
    return new is None or new.allocation is None


def _of_claim(event: ClusterEvent, old: ResourceClaimInfo | None, new: ResourceClaimInfo | None) -> AllPods | list[Key]:
    if frees(old, new):
        return ALL_PODS
    # Includes deleted claims: the demands of their pods have to be read again.
    seen = [each for each in (old, new) if each is not None]
    keys: list[Key] = [("claim", *each.key) for each in seen]
    keys += [("made for", _made_for(each)) for each in seen if _made_for(each)]
    return keys


def _of_class(event: ClusterEvent, old: DeviceClassInfo | None, new: DeviceClassInfo) -> list[Key]:
    return [ANYWAY, ("class", new.name), *(("resource", name) for name in _resources_of(old, new))]


def _resources_of(old: DeviceClassInfo | None, new: DeviceClassInfo) -> frozenset[str]:
    """Return the extended resources that a class provides or provided."""
    return new.resources if old is None else old.resources | new.resources


def _claims_of(pod: PodInfo) -> list[Key]:
    found: list[Key] = [("claim", *claim.claim) for claim in pod.claims if claim.claim is not None]
    if pod.extended is not None:
        found.append(("made for", pod.uid))
    return found


def _made_for(claim: ResourceClaimInfo) -> str:
    """Return the UID of the pod for whose extended resources a claim was created; empty if for none."""
    return claim.controller if claim.extended else ""


def _class_names(wanted: ClaimDemand) -> frozenset[str]:
    return frozenset().union(*(each.spec.class_names for each in wanted.to_allocate))


def _of_pool(each: SliceInfo, devices: Devices) -> tuple[DeviceInfo, ...]:
    """Return the devices of a slice, and those of its pool's newest generation: the slice may have completed it."""
    pool = devices.pools.get(each.pool)
    here = pool.newest if pool is not None else ()
    return (*each.devices, *(device for other in here for device in other.devices))


def _on(
    kind: Resource, action: ActionType, helps: Callable[[Any, Any, Any], bool], pre_hint: Any
) -> ClusterEventWithHint:
    def ask(pod: Any, old: object | None, new: object | None) -> QueueingHint:
        return QueueingHint.QUEUE if helps(pod, old, new) else QueueingHint.SKIP

    return ClusterEventWithHint(ClusterEvent(kind, action), ask, pre_hint)
