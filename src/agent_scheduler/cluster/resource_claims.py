"""Resource claims, device classes and slices on their way in.

What is seen goes to `engine.dra.catalogue`, and from there to the pods that wait: those that were refused for want of
devices, which the queue wakes by hints, and those whose claims are being written, each of which waits for changes of
its own (`changes`).
"""

from __future__ import annotations

from typing import Final

from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.dra.records import (
    ClaimInfo,
    read_claim,
    read_device_class,
    read_slice,
)
from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.state.podclaims import ClaimKey, PodRef
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.kube.transport import segment

from .changes import Changes
from .kinds import Kind, cached_kind
from .subscribers import Events

GROUP: Final = "/apis/resource.k8s.io/v1"


def claims_path(namespace: str) -> str:
    return f"{GROUP}/namespaces/{segment(namespace)}/resourceclaims"


def claim_path(namespace: str, name: str) -> str:
    return f"{claims_path(namespace)}/{segment(name)}"


_CLAIM_UPDATE = ClusterEvent(Resource.RESOURCE_CLAIM, ActionType.UPDATE)
_CLAIM_DELETE = ClusterEvent(Resource.RESOURCE_CLAIM, ActionType.DELETE)


def pod_ref(pod: PodInfo) -> PodRef:
    return PodRef(pod.namespace, pod.name, pod.uid)


def _alike(one: ClaimInfo, other: ClaimInfo) -> bool:
    """Whether the same pods have the same of it."""
    return (one.allocation, one.reserved_for) == (other.allocation, other.reserved_for)


class ResourceClaims:
    """Tells of changes; the objects are `devices`'. Owner of who waits for which claim."""

    def __init__(self, devices: Devices, events: Events) -> None:
        self.devices = devices
        self.changes: Changes[ClaimKey] = Changes()
        self._events = events

    def kinds(self) -> list[Kind]:
        """What is to be watched. A cluster may not have them: they came with Kubernetes 1.34."""
        devices = self.devices
        return [
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

    def _put_claim(self, new: ClaimInfo) -> bool:
        """Others may have been refused because of what was assumed of the claim and is not true any more, though the
        watch shows nothing new: it missed what came and went in between."""
        devices = self.devices
        before = devices.as_assumed(new.key) if devices.assumed.get(new.key) is not None else None
        changed = devices.set_claim(new)
        after = devices.as_assumed(new.key)
        # Whoever writes the claim waits for its version, too, which no decision reads.
        self.changes.wake(new.key)
        if before is not None and after is not None and not _alike(before, after):
            self._events.move_all(_CLAIM_UPDATE, before, after)
        return changed

    def _drop_claim(self, gone: ClaimInfo) -> bool:
        devices = self.devices
        known, before = devices.claim(gone.key), devices.as_assumed(gone.key)
        dropped = devices.delete_claim(gone.key)
        self.changes.wake(gone.key)
        if known is not None and before is not None and not _alike(known, before):
            self._events.move_all(_CLAIM_DELETE, before, None)
        return dropped

    def give_back(self, uid: str) -> None:
        """A pod no longer counts on what was reserved for it and is not written; others may have it."""
        for before, after in self.devices.forget(uid):
            self._events.move_all(_CLAIM_UPDATE, before, after)
