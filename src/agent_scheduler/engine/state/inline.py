"""Disks that pods reference directly instead of by claims; some must not be mounted twice on a node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agent_scheduler.objects import storage


class Disk(NamedTuple):
    """A disk that a pod references directly. `monitors` identifies the Ceph cluster; empty for other kinds."""

    kind: str
    name: str
    monitors: frozenset[str]
    read_only: bool


def disks_of(volume: storage.PodVolume) -> Iterable[Disk]:
    """Yield the disks of a volume for which conflicts on a node are checked."""
    if volume.gce_persistent_disk is not None:
        gce = volume.gce_persistent_disk
        yield Disk("gce", gce.pd_name, frozenset(), gce.read_only)
    if volume.aws_elastic_block_store is not None:
        # EBS volumes are never shared, even if they are mounted read-only.
        yield Disk("aws", volume.aws_elastic_block_store.volume_id, frozenset(), False)
    if volume.iscsi is not None:
        yield Disk("iscsi", volume.iscsi.iqn, frozenset(), volume.iscsi.read_only)
    if volume.rbd is not None:
        rbd = volume.rbd
        # The API server sets the pool to "rbd" by default.
        name = f"{rbd.pool or 'rbd'}/{rbd.image}"
        yield Disk("rbd", name, frozenset(rbd.monitors or ()), rbd.read_only)


def conflicts(one: Disk, other: Disk) -> bool:
    """Return whether two pods on one node cannot use both: they are the same disk and at least one is writable."""
    return (
        one.kind == other.kind
        and one.name == other.name
        and (one.kind != "rbd" or not one.monitors.isdisjoint(other.monitors))
        and not (one.read_only and other.read_only)
    )
