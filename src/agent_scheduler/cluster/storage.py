"""The path of storage objects from the watches to the catalog, and to waiting pods.

Two kinds of pods wait: those rejected by a volume rule, which the queue wakes by the hints of `engine.volumes.hints`,
and those whose claims are being bound (`prebind`), each of which waits for changes of its own claims (`changes`).
"""

from __future__ import annotations

from collections.abc import Iterable

from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.state.podvolumes import ClaimKey
from agent_scheduler.engine.volumes import records
from agent_scheduler.engine.volumes.catalogue import Catalogue
from agent_scheduler.engine.volumes.records import ClaimInfo, VolumeInfo
from agent_scheduler.engine.volumes.reservation import unreserve
from kube_client.informers import Kind

from .changes import Changes
from .kinds import cached_kind
from .subscribers import EventReceivers

CORE, GROUP = "/api/v1", "/apis/storage.k8s.io/v1"


class Storage:
    """Reports changes; the catalog has the objects. `changes` are those of claims, and of volumes for a claim."""

    def __init__(self, catalogue: Catalogue, events: EventReceivers) -> None:
        self.catalogue = catalogue
        self._events = events
        self.changes: Changes[ClaimKey] = Changes()

    def kinds(self) -> list[Kind]:
        """Return the kinds to watch. For clusters without claims they cost only a connection each."""
        return [*self._of_volumes(), *self._of_drivers()]

    def _of_volumes(self) -> list[Kind]:
        c = self.catalogue
        return [
            cached_kind(
                self._events,
                Resource.STORAGE_CLASS,
                f"{GROUP}/storageclasses",
                records.read_class,
                known=lambda each: c.classes.get(each.name),
                put=c.set_class,
                drop=lambda each: c.delete_class(each.name),
            ),
            cached_kind(
                self._events,
                Resource.PERSISTENT_VOLUME,
                f"{CORE}/persistentvolumes",
                records.read_volume,
                known=lambda each: c.volumes.get(each.name),
                put=c.set_volume,
                drop=lambda each: c.delete_volume(each.name),
                changed=self._volume_changed,
            ),
            cached_kind(
                self._events,
                Resource.PERSISTENT_VOLUME_CLAIM,
                f"{CORE}/persistentvolumeclaims",
                records.read_claim,
                known=lambda each: c.claims.get(each.key),
                put=c.set_claim,
                drop=lambda each: c.delete_claim(each.namespace, each.name),
                changed=lambda each: self.changes.wake(each.key),
            ),
        ]

    def _of_drivers(self) -> list[Kind]:
        c = self.catalogue
        return [
            cached_kind(
                self._events,
                Resource.CSI_NODE,
                f"{GROUP}/csinodes",
                records.read_csi_node,
                known=lambda each: c.csi_nodes.get(each.name),
                put=c.set_csi_node,
                drop=lambda each: c.delete_csi_node(each.name),
            ),
            cached_kind(
                self._events,
                Resource.CSI_DRIVER,
                f"{GROUP}/csidrivers",
                records.read_driver,
                known=lambda each: c.drivers.get(each.name),
                put=c.set_driver,
                drop=lambda each: c.delete_driver(each.name),
            ),
            cached_kind(
                self._events,
                Resource.CSI_STORAGE_CAPACITY,
                f"{GROUP}/csistoragecapacities",
                records.read_capacity,
                known=lambda each: c.capacity(each.namespace, each.name),
                put=c.set_capacity,
                drop=lambda each: c.delete_capacity(each.namespace, each.name),
            ),
            cached_kind(
                self._events,
                Resource.VOLUME_ATTACHMENT,
                f"{GROUP}/volumeattachments",
                records.read_attachment,
                known=lambda each: c.attachment(each.name),
                put=c.set_attachment,
                drop=lambda each: c.delete_attachment(each.name),
            ),
        ]

    def give_back(self, uid: str) -> None:
        """Release a pod's reservations that are not written, so that others may use them."""
        self.tell(unreserve(self.catalogue, uid))

    def tell(self, freed: Iterable[VolumeInfo | ClaimInfo]) -> None:
        for each in freed:
            kind = Resource.PERSISTENT_VOLUME if isinstance(each, VolumeInfo) else Resource.PERSISTENT_VOLUME_CLAIM
            self._events.move_all(ClusterEvent(kind, ActionType.UPDATE), None, each)

    def _volume_changed(self, volume: VolumeInfo) -> None:
        if volume.claim_ref is not None:
            self.changes.wake((volume.claim_ref.namespace, volume.claim_ref.name))
