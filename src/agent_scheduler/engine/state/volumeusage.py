"""The volumes of placed pods, by node, claim and disk; updated by the ledger for each placement.

Pods without `PodVolumes` are not recorded. `version` increases with every change.
Invariant, checked by `check`: every index agrees with the placements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .indexes import drop_entry
from .inline import Disk
from .podvolumes import ClaimKey, PodVolumes


class PlacedVolumes(NamedTuple):
    node_name: str
    volumes: PodVolumes


class VolumeUse:
    """Owner of the volumes of placed pods, by UID. Single-threaded, like the ledger."""

    def __init__(self) -> None:
        self.version = 0
        self._placed: dict[str, PlacedVolumes] = {}
        self._on: dict[str, dict[str, PodVolumes]] = {}
        #: Node -> `version` when its pods last changed.
        self._stamps: dict[str, int] = {}
        #: Node -> number of mounts of its pods that a driver may count.
        self._counts: dict[str, int] = {}
        #: Claim -> UIDs of the pods on nodes that have it.
        self._users: dict[ClaimKey, dict[str, None]] = {}
        #: (kind, name) of an inline disk -> UIDs of the pods on nodes that have it.
        self._disk_users: dict[tuple[str, str], dict[str, None]] = {}

    def set(self, uid: str, node_name: str, volumes: PodVolumes) -> None:
        """Record a pod that is bound or assumed on a node; an earlier record is replaced."""
        placed = PlacedVolumes(node_name, volumes)
        if self._placed.get(uid) == placed:
            return
        self.remove(uid)
        self._placed[uid] = placed
        self._on.setdefault(node_name, {})[uid] = volumes
        self._counts[node_name] = self.count(node_name) + mounts(volumes)
        for use in volumes.claims:
            self._users.setdefault(use.key, {})[uid] = None
        for disk in volumes.disks:
            self._disk_users.setdefault((disk.kind, disk.name), {})[uid] = None
        self._changed(node_name)

    def remove(self, uid: str) -> None:
        """Remove a pod that has left its node; an unknown UID is ignored."""
        placed = self._placed.pop(uid, None)
        if placed is None:
            return
        there = self._on[placed.node_name]
        del there[uid]
        self._counts[placed.node_name] -= mounts(placed.volumes)
        if not there:
            del self._on[placed.node_name], self._counts[placed.node_name]
        for use in placed.volumes.claims:
            drop_entry(self._users, use.key, uid)
        for disk in placed.volumes.disks:
            drop_entry(self._disk_users, (disk.kind, disk.name), uid)
        self._changed(placed.node_name)

    def _changed(self, node_name: str) -> None:
        self.version += 1
        if node_name in self._on:
            self._stamps[node_name] = self.version
        else:
            self._stamps.pop(node_name, None)

    def stamp(self, node_name: str) -> int:
        """Return a number that changes with the node's pods with volumes; -1 while there are none."""
        return self._stamps.get(node_name, -1)

    def on(self, node_name: str) -> Mapping[str, PodVolumes]:
        """Return the volumes of the pods on a node, by UID, for pods with any."""
        return self._on.get(node_name, {})

    def count(self, node_name: str) -> int:
        """Return an upper bound of the volumes on a node: shared volumes count once per pod."""
        return self._counts.get(node_name, 0)

    def users(self, claim: ClaimKey) -> Mapping[str, PlacedVolumes]:
        """Return the placements of the pods that use a claim, by UID."""
        return {uid: self._placed[uid] for uid in self._users.get(claim, ())}

    def disk_users(self, disk: Disk) -> Iterable[tuple[str, PlacedVolumes]]:
        """Return the pods that reference the disk directly, or a disk of the same name in another Ceph cluster."""
        return [(uid, self._placed[uid]) for uid in self._disk_users.get((disk.kind, disk.name), ())]

    def check(self) -> list[str]:
        """Return the violations of the invariant."""
        anew = VolumeUse()
        for uid, placed in self._placed.items():
            anew.set(uid, *placed)
        return [
            f"{index} is out of step with the placements"
            for index in ("_on", "_counts", "_users", "_disk_users")
            if getattr(self, index) != getattr(anew, index)
        ]


def mounts(volumes: PodVolumes) -> int:
    """Return the number of volumes that a driver may count."""
    return len(volumes.claims) + len(volumes.in_tree)
