"""Disks that pods name themselves, the way it was before claims: some must not be mounted twice on a node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agent_scheduler.objects import storage


class Disk(NamedTuple):
    """A disk that pods name themselves. `monitors` tells Ceph clusters apart; empty for other kinds."""

    kind: str
    name: str
    monitors: frozenset[str]
    read_only: bool


def disks_of(volume: storage.PodVolume) -> Iterable[Disk]:
    """The disks that a volume names and that a node may refuse to have twice."""
    if volume.gce_persistent_disk is not None:
        gce = volume.gce_persistent_disk
        yield Disk("gce", gce.pd_name, frozenset(), gce.read_only)
    if volume.aws_elastic_block_store is not None:
        # Never shared, whatever the mounts say.
        yield Disk("aws", volume.aws_elastic_block_store.volume_id, frozenset(), False)
    if volume.iscsi is not None:
        yield Disk("iscsi", volume.iscsi.iqn, frozenset(), volume.iscsi.read_only)
    if volume.rbd is not None:
        rbd = volume.rbd
        # The API server fills in the pool; "rbd" is what it fills in.
        name = f"{rbd.pool or 'rbd'}/{rbd.image}"
        yield Disk("rbd", name, frozenset(rbd.monitors or ()), rbd.read_only)


def conflicts(one: Disk, other: Disk) -> bool:
    """Whether two pods on one node cannot have both: the same disk, unless both only read it."""
    return (
        one.kind == other.kind
        and one.name == other.name
        and (one.kind != "rbd" or not one.monitors.isdisjoint(other.monitors))
        and not (one.read_only and other.read_only)
    )
