"""The path of resource claims, device classes and slices from the watches to the catalog.

Changes go to `engine.dra.catalogue` and to waiting pods: those rejected for lack of devices, which the queue wakes by
hints, and those whose claims are being written, each of which waits for its own changes (`changes`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.dra.records import Readable, ResourceClaimInfo, read_claim, read_device_class, read_slice
from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.state.podclaims import ClaimKey, PodRef
from agent_scheduler.engine.state.podinfo import PodInfo
from kube_client.informers import Kind
from kube_client.transport import segment

from .changes import Changes
from .kinds import cached_kind
from .subscribers import EventReceivers

GROUP: Final = "/apis/resource.k8s.io/v1"


def claims_path(namespace: str) -> str:
    return f"{GROUP}/namespaces/{segment(namespace)}/resourceclaims"


def claim_path(namespace: str, name: str) -> str:
    return f"{claims_path(namespace)}/{segment(name)}"


_CLAIM_UPDATE = ClusterEvent(Resource.RESOURCE_CLAIM, ActionType.UPDATE)
_CLAIM_DELETE = ClusterEvent(Resource.RESOURCE_CLAIM, ActionType.DELETE)


def pod_ref(pod: PodInfo) -> PodRef:
    return PodRef(pod.namespace, pod.name, pod.uid)


def _alike(one: ResourceClaimInfo, other: ResourceClaimInfo) -> bool:
    """Return whether both mean the same for the same pods."""
    return (one.allocation, one.reserved_for) == (other.allocation, other.reserved_for)


def _problem_of(each: Readable) -> str:
    return each.error


class ResourceClaims:
    """Reports changes; `devices` has the objects. Owns the tasks that wait for claims."""

    def __init__(self, devices: Devices, events: EventReceivers) -> None:
        self.devices = devices
        self.changes: Changes[ClaimKey] = Changes()
        self._events = events

    def kinds(self) -> list[Kind]:
        """Return the kinds to watch. A cluster may lack them: they exist since Kubernetes 1.34."""
        devices = self.devices
        kinds = [
            cached_kind(
                self._events,
                Resource.DEVICE_CLASS,
                f"{GROUP}/deviceclasses",
                read_device_class,
                known=lambda each: devices.classes.get(each.name),
                put=devices.set_class,
                drop=lambda each: devices.delete_class(each.name),
                optional=True,
            ),
            cached_kind(
                self._events,
                Resource.RESOURCE_SLICE,
                f"{GROUP}/resourceslices",
                read_slice,
                known=lambda each: devices.pools.slices.get(each.name),
                put=devices.pools.set_slice,
                drop=lambda each: devices.pools.delete_slice(each.name),
                optional=True,
            ),
            cached_kind(
                self._events,
                Resource.RESOURCE_CLAIM,
                f"{GROUP}/resourceclaims",
                read_claim,
                known=lambda each: devices.claim(each.key),
                put=self._put_claim,
                drop=self._drop_claim,
                optional=True,
                vital=True,
            ),
        ]
        return [replace(each, problem=_problem_of) for each in kinds]

    def _put_claim(self, new: ResourceClaimInfo) -> bool:
        """Store a claim, and wake pods that were rejected because of an outdated assumption about it.

        The watch may not show the difference, because it can miss intermediate changes.
        """
        devices = self.devices
        before = devices.as_assumed(new.key) if devices.assumed.get(new.key) is not None else None
        changed = devices.set_claim(new)
        after = devices.as_assumed(new.key)
        # A writer of the claim waits for its version, too, which decisions do not use.
        self.changes.wake(new.key)
        if before is not None and after is not None and not _alike(before, after):
            self._events.move_all(_CLAIM_UPDATE, before, after)
        return changed

    def _drop_claim(self, gone: ResourceClaimInfo) -> bool:
        devices = self.devices
        known, before = devices.claim(gone.key), devices.as_assumed(gone.key)
        dropped = devices.delete_claim(gone.key)
        self.changes.wake(gone.key)
        if known is not None and before is not None and not _alike(known, before):
            self._events.move_all(_CLAIM_DELETE, before, None)
        return dropped

    def give_back(self, uid: str) -> None:
        """Release a pod's reservations that are not written, so that others may use them."""
        for before, after in self.devices.forget(uid):
            self._events.move_all(_CLAIM_UPDATE, before, after)
