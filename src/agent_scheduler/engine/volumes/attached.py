"""The volumes that each node has attached, by driver, as NodeVolumeLimits counts them.

Computed for nodes that may be full, and kept until an input changes: the pods of the node, their claims, the volumes of
these, the attachments, the classes. So a pod that asks about many full nodes costs only their changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ..state.migration import CSI_DRIVERS
from ..state.podvolumes import ClaimKey, PodVolumes
from ..state.volumeusage import VolumeUse
from .catalogue import Catalogue
from .records import ClaimInfo

#: (driver, handle): the driver's identity of the volume.
VolumeId = tuple[str, str]

#: Driver -> handles.
ByDriver = Mapping[str, AbstractSet[str]]


class _CachedVolumes(NamedTuple):
    stamps: tuple[int, tuple[int, int]]
    found: ByDriver


class Attached:
    """Owns the kept results; everything else is read."""

    def __init__(self, catalogue: Catalogue, use: VolumeUse) -> None:
        self.catalogue = catalogue
        self.use = use
        self._kept: dict[str, _CachedVolumes] = {}
        #: Claim or volume -> the nodes whose results depend on it. Removed when it changes or is deleted.
        self._read_for: dict[ClaimKey | str, set[str]] = {}
        self._seen = catalogue.touches

    def on(
        self,
        node_name: str,
        *,
        without: AbstractSet[str] = frozenset(),
        hypothetical_pods: Mapping[str, PodVolumes] | None = None,
    ) -> ByDriver:
        """Return the volumes attached to a node, except those of pods in `without`, and with `hypothetical_pods`."""
        there = self.use.on(node_name)
        if not hypothetical_pods and without.isdisjoint(there):
            return self._usual(node_name, there.values())
        pods = [volumes for uid, volumes in there.items() if uid not in without]
        return self._sorted(node_name, [*pods, *(hypothetical_pods or {}).values()])

    def _usual(self, node_name: str, pods: Iterable[PodVolumes]) -> ByDriver:
        self._forget_what_changed()
        stamps = self.use.stamp(node_name), self.catalogue.stamp(node_name)
        kept = self._kept.get(node_name)
        if kept is not None and kept.stamps == stamps:
            return kept.found
        for each in pods:
            for use in each.claims:
                self._read(use.key, node_name)
                claim = self.catalogue.claims.get(use.key)
                if claim is not None and claim.volume_name:
                    self._read(claim.volume_name, node_name)
        for attachment in self.catalogue.attachments(node_name):
            if attachment.volume_name:
                self._read(attachment.volume_name, node_name)
        if len(self._kept) > 2 * len(self.catalogue.csi_nodes):
            # Most results are of deleted nodes.
            self._kept.clear()
        found = self._sorted(node_name, pods)
        self._kept[node_name] = _CachedVolumes(stamps, found)
        return found

    def _read(self, key: ClaimKey | str, node_name: str) -> None:
        self._read_for.setdefault(key, set()).add(node_name)

    def _forget_what_changed(self) -> None:
        if self._seen == self.catalogue.touches:
            return
        touched = self.catalogue.touched_since(self._seen)
        self._seen = self.catalogue.touches
        if touched is None:
            self._kept.clear()
            self._read_for.clear()
            return
        for key in touched:
            for node_name in self._read_for.pop(key, ()):
                self._kept.pop(node_name, None)

    def _sorted(self, node_name: str, pods: Iterable[PodVolumes]) -> ByDriver:
        found: dict[str, set[str]] = {}
        for each in pods:
            for driver, handle in handles(each, self.catalogue):
                found.setdefault(driver, set()).add(handle)
        for attachment in self.catalogue.attachments(node_name):
            volume = self.catalogue.volumes.get(attachment.volume_name)
            # An inline volume is counted with its pod, and so is an in-tree volume, whose attachment has no handle.
            if volume is not None and volume.handle and not volume.plugin:
                found.setdefault(attachment.driver, set()).add(volume.handle)
        return found


def handles(volumes: PodVolumes, catalogue: Catalogue) -> Iterator[VolumeId]:
    """Yield the volumes that a pod has attached where it runs, as far as its claims are known."""
    for use in volumes.claims:
        claim = catalogue.claims.get(use.key)
        handle = _claim_handle(claim, catalogue) if claim is not None else None
        if handle is not None:
            yield handle
    for inline in volumes.in_tree:
        yield inline.driver, inline.handle


def _claim_handle(claim: ClaimInfo, catalogue: Catalogue) -> VolumeId | None:
    volume = catalogue.volumes.get(claim.volume_name) if claim.volume_name else None
    if volume is not None:
        return (volume.driver, volume.handle) if volume.driver and volume.handle else None
    found = catalogue.classes.get(claim.class_name)
    if found is None or not found.provisioner:
        return None
    # It has no handle yet. The NUL avoids collisions with drivers' handles.
    handle = f"\0{claim.namespace}/{claim.name}"
    return CSI_DRIVERS.get(found.provisioner, found.provisioner), handle
