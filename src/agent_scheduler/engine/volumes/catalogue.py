"""The single owner of storage objects: their last known state, and the assumptions of our decisions about them.

Single-threaded, like the ledger: called between awaits of one loop. `version` increases with every change that affects
decisions, so an answer holds as long as the version is unchanged. Objects are never changed; assumptions are kept
separately.

Invariants, checked by `check`:
- a volume is taken for one claim at most, and a claim has one selected node at most;
- a volume is free exactly if no claim is named in it or assumed for it, and its phase allows a bind;
- every index agrees with the objects.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Final, TypeVar

from ..state.indexes import drop_entry
from ..state.podvolumes import ClaimKey
from ..state.reach import Reach
from ..state.records import Record, same, version_of
from .assume_cache import AssumeCache
from .candidate_index import CandidateIndexes
from .records import (
    AttachmentInfo,
    CapacityInfo,
    ClaimInfo,
    ClaimRef,
    ClassInfo,
    CSINodeInfo,
    DriverInfo,
    VolumeDemand,
    VolumeInfo,
    could_be_had,
    is_large_enough,
    place_of,
    size_of,
)

#: Changes of claims and volumes that are known individually.
TOUCHES_KEPT: Final = 4096

R = TypeVar("R", bound=Record)
K = TypeVar("K", bound=Hashable)


def is_for(ref: ClaimRef, claim: ClaimInfo) -> bool:
    """Return whether a volume with this reference is for the claim; without a UID it is for any claim of the name."""
    return ref.namespace == claim.namespace and ref.name == claim.name and ref.uid in ("", claim.uid)


class Catalogue:
    """Owns the tables of storage objects, by name unless noted. Only the methods change them."""

    def __init__(self) -> None:
        self.version = 0
        self.claims: dict[ClaimKey, ClaimInfo] = {}
        self.volumes: dict[str, VolumeInfo] = {}
        self.classes: dict[str, ClassInfo] = {}
        self.csi_nodes: dict[str, CSINodeInfo] = {}
        self.drivers: dict[str, DriverInfo] = {}
        self._capacities: dict[tuple[str, str], CapacityInfo] = {}
        self._attachments: dict[str, AttachmentInfo] = {}
        #: Volume -> the claim that a decision took it for.
        self.taken: AssumeCache[str, ClaimRef] = AssumeCache()
        #: Claim -> the node that a decision selected for its provisioning.
        self.selected: AssumeCache[ClaimKey, str] = AssumeCache()
        #: Volumes of each class that any claim may use, smallest first.
        self.free: CandidateIndexes[VolumeDemand, VolumeInfo] = CandidateIndexes(size_of, could_be_had)
        #: Claim -> volumes that name it or are taken for it.
        self._prebound: dict[ClaimKey, dict[str, VolumeInfo]] = {}
        #: Pools where a volume can be provisioned, by its size.
        self.capacities: CandidateIndexes[int, CapacityInfo] = CandidateIndexes(place_of, is_large_enough)
        self._attached_to: dict[str, dict[str, AttachmentInfo]] = {}
        #: Node -> a number that is unique to its current attachments; and one for the classes.
        self._stamps: dict[str, int] = {}
        self._class_stamp = 0
        self._numbers = itertools.count(1)
        #: The last changed claims and volumes, and the number of their changes.
        self._touched: deque[ClaimKey | str] = deque(maxlen=TOUCHES_KEPT)
        self.touches = 0
        #: Driver -> node -> the number of volumes that it can attach there.
        self._limits: dict[str, dict[str, int]] = {}
        #: In-tree plugin -> nodes where a CSI driver has replaced it.
        self._migrated: dict[str, dict[str, None]] = {}

    # ---- queries

    def claim_ref(self, volume: VolumeInfo) -> ClaimRef | None:
        """Return the claim that the volume is for, assumed or according to the API server."""
        return self.taken.get(volume.name) or volume.claim_ref

    def selected_node(self, claim: ClaimInfo) -> str | None:
        """Return the node selected for the claim's provisioning, assumed or according to the API server."""
        assumed = self.selected.get(claim.key)
        return claim.selected_node if assumed is None else assumed

    def prebound_for(self, claim: ClaimInfo) -> list[VolumeInfo]:
        """Return the volumes that are for this claim, smallest first."""
        found = [
            volume
            for volume in self._prebound.get(claim.key, {}).values()
            if (ref := self.claim_ref(volume)) is not None and is_for(ref, claim)
        ]
        return sorted(found, key=size_of)

    def capacity(self, namespace: str, name: str) -> CapacityInfo | None:
        return self._capacities.get((namespace, name))

    def attachment(self, name: str) -> AttachmentInfo | None:
        return self._attachments.get(name)

    def attachments(self, node_name: str) -> Collection[AttachmentInfo]:
        return self._attached_to.get(node_name, {}).values()

    def stamp(self, node_name: str) -> tuple[int, int]:
        """Return a stamp that differs whenever the attachments of the node, or any class, may have changed."""
        return self._stamps.get(node_name, 0), self._class_stamp

    def touched_since(self, touches: int) -> Iterable[ClaimKey | str] | None:
        """Return the claims and volumes that changed since `touches` had this value; None if that is too long ago."""
        number = self.touches - touches
        return None if number > len(self._touched) else itertools.islice(reversed(self._touched), number)

    def limits(self, driver: str) -> Mapping[str, int]:
        """Return node -> the limit of attached volumes of the driver; nodes without an entry have no limit."""
        return self._limits.get(driver, {})

    def migrated_on(self, plugin: str) -> Collection[str]:
        """Return the nodes where a CSI driver has replaced an in-tree plugin."""
        return self._migrated.get(plugin, ())

    def reach(self, volume: VolumeInfo, node_name: str) -> Reach | None:
        """Return the requirements of the volume for a node; None for none."""
        if volume.migrated_reach is volume.reach or node_name not in self.migrated_on(volume.plugin):
            return volume.reach
        return volume.migrated_reach

    # ---- changes from the watch; each returns whether it affects decisions

    def set_claim(self, claim: ClaimInfo) -> bool:
        old = self.claims.get(claim.key)
        if old is not None and not _is_news(claim, old):
            return False
        self._touch(claim.key)
        ended = self.selected.seen(claim.key, version_of(claim))
        return self._set(self.claims, claim.key, claim, ended)

    def delete_claim(self, namespace: str, name: str) -> bool:
        self._touch((namespace, name))
        self.selected.drop((namespace, name))
        return self._delete(self.claims, (namespace, name))

    def set_volume(self, volume: VolumeInfo) -> bool:
        old = self.volumes.get(volume.name)
        if old is not None and not _is_news(volume, old):
            return False
        if old is not None:
            self._unindex(old)
        self._touch(volume.name)
        ended = self.taken.seen(volume.name, version_of(volume))
        self._index(volume)
        return self._set(self.volumes, volume.name, volume, ended)

    def delete_volume(self, name: str) -> bool:
        old = self.volumes.get(name)
        if old is not None:
            self._unindex(old)
        self._touch(name)
        self.taken.drop(name)
        return self._delete(self.volumes, name)

    def set_class(self, each: ClassInfo) -> bool:
        self._class_stamp = next(self._numbers)
        return self._set(self.classes, each.name, each)

    def delete_class(self, name: str) -> bool:
        self._class_stamp = next(self._numbers)
        return self._delete(self.classes, name)

    def set_csi_node(self, node: CSINodeInfo) -> bool:
        self._unindex_node(node.name)
        self._index_node(node)
        return self._set(self.csi_nodes, node.name, node)

    def delete_csi_node(self, name: str) -> bool:
        self._unindex_node(name)
        return self._delete(self.csi_nodes, name)

    def set_driver(self, driver: DriverInfo) -> bool:
        return self._set(self.drivers, driver.name, driver)

    def delete_driver(self, name: str) -> bool:
        return self._delete(self.drivers, name)

    def set_capacity(self, capacity: CapacityInfo) -> bool:
        key = (capacity.namespace, capacity.name)
        self._forget_pool(key)
        self.capacities.put(capacity)
        return self._set(self._capacities, key, capacity)

    def delete_capacity(self, namespace: str, name: str) -> bool:
        key = (namespace, name)
        self._forget_pool(key)
        return self._delete(self._capacities, key)

    def set_attachment(self, attachment: AttachmentInfo) -> bool:
        name = attachment.name
        self._forget_attachment(name)
        self._attached_to.setdefault(attachment.node_name, {})[name] = attachment
        self._stamps[attachment.node_name] = next(self._numbers)
        return self._set(self._attachments, name, attachment)

    def delete_attachment(self, name: str) -> bool:
        self._forget_attachment(name)
        return self._delete(self._attachments, name)

    # ---- assumptions of decisions

    def take(self, volume: VolumeInfo, claim: ClaimInfo, holder: str) -> bool:
        """Take a volume for a claim. Return false, with nothing changed, if it is for another by now."""
        known, ref = self.volumes.get(volume.name), self.claim_ref(volume)
        if known is not volume or self.claims.get(claim.key) is not claim:
            return False
        if ref is not None and not is_for(ref, claim):
            return False
        if volume.claim_ref is not None and volume.claim_ref.uid:
            return True
        self._unindex(volume)
        new = self.taken.assume(volume.name, ClaimRef(*claim.key, claim.uid), holder)
        self._index(volume)
        self.version += new
        return True

    def select(self, claim: ClaimInfo, node_name: str, holder: str) -> bool:
        """Select the node for a claim's provisioning. Return false, with nothing changed, if it has another by now."""
        if self.claims.get(claim.key) is not claim or self.selected_node(claim) not in (None, node_name):
            return False
        if claim.selected_node is not None:
            return True
        self.version += self.selected.assume(claim.key, node_name, holder)
        return True

    def release(self, holder: str) -> list[VolumeInfo | ClaimInfo]:
        """Undo assumptions of `holder` alone that are not written. Return the objects that are free again."""
        volumes = self.taken.held(holder)
        for name in volumes:
            self._unindex(self.volumes[name])
        freed: list[VolumeInfo | ClaimInfo] = [self.volumes[name] for name in self.taken.release(holder)]
        for name in volumes:
            self._index(self.volumes[name])
        freed += [self.claims[key] for key in self.selected.release(holder)]
        self.version += bool(freed)
        return freed

    # ---- inside

    def _touch(self, key: ClaimKey | str) -> None:
        self._touched.append(key)
        self.touches += 1

    def _set(self, table: dict[K, R], key: K, new: R, changed: bool = False) -> bool:
        old = table.get(key)
        changed = changed or old is None or not same(new, old)
        table[key] = new
        self.version += changed
        return changed

    def _delete(self, table: dict[K, R], key: K) -> bool:
        gone = table.pop(key, None) is not None
        self.version += gone
        return gone

    def _index(self, volume: VolumeInfo) -> None:
        ref = self.claim_ref(volume)
        if ref is not None:
            self._prebound.setdefault((ref.namespace, ref.name), {})[volume.name] = volume
        elif volume.available and not volume.deleting:
            self.free.put(volume)

    def _unindex(self, volume: VolumeInfo) -> None:
        ref = self.claim_ref(volume)
        if ref is not None:
            drop_entry(self._prebound, (ref.namespace, ref.name), volume.name)
        elif volume.available and not volume.deleting:
            self.free.drop(volume)

    def _index_node(self, node: CSINodeInfo) -> None:
        for driver, count in node.limits.items():
            self._limits.setdefault(driver, {})[node.name] = count
        for plugin in node.migrated:
            self._migrated.setdefault(plugin, {})[node.name] = None

    def _unindex_node(self, node_name: str) -> None:
        old = self.csi_nodes.get(node_name)
        if old is not None:
            for driver in old.limits:
                drop_entry(self._limits, driver, node_name)
            for plugin in old.migrated:
                drop_entry(self._migrated, plugin, node_name)

    def _forget_pool(self, key: tuple[str, str]) -> None:
        old = self._capacities.get(key)
        if old is not None:
            self.capacities.drop(old)

    def _forget_attachment(self, name: str) -> None:
        old = self._attachments.get(name)
        if old is not None:
            drop_entry(self._attached_to, old.node_name, name)
            if old.node_name in self._attached_to:
                self._stamps[old.node_name] = next(self._numbers)
            else:
                del self._stamps[old.node_name]

    def check(self) -> list[str]:
        """Return the contradictions of the invariants; empty if all hold. Costs a pass over everything."""
        problems = self.taken.check() + self.selected.check()
        problems += [f"volume {name} is taken, but unknown" for name in self.taken if name not in self.volumes]
        problems += [f"{key} has a selected node, but is unknown" for key in self.selected if key not in self.claims]
        fresh = Catalogue()
        fresh.taken, fresh.selected = self.taken, self.selected
        fresh.csi_nodes = self.csi_nodes
        for volume in self.volumes.values():
            fresh._index(volume)
        for capacity in self._capacities.values():
            fresh.capacities.put(capacity)
        for each in self._attachments.values():
            fresh._attached_to.setdefault(each.node_name, {})[each.name] = each
        for node in self.csi_nodes.values():
            fresh._index_node(node)
        for index in ("_prebound", "_attached_to", "_limits", "_migrated"):
            if getattr(self, index) != getattr(fresh, index):
                problems.append(f"{index} is out of step with the objects")
        if not (self.free.has_same_candidates(fresh.free) and self.capacities.has_same_candidates(fresh.capacities)):
            problems.append("the candidate indexes are out of step with the objects")
        return problems + self.free.check() + self.capacities.check()


def _is_news(new: Record, old: Record) -> bool:
    """Return whether the object is new, and not a repetition by a list, which must not end assumptions."""
    if new.uid != old.uid:
        return True
    return new.resource_version != old.resource_version and version_of(new) >= version_of(old)
