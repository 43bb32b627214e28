"""VolumeRestrictions: disks that a node must not have twice, and claims that one pod at a time may have.

Both can be cured by evicting pods: an inline disk by those on the node that have it, a ReadWriteOncePod claim by the
one pod that has it, wherever that is. So what a preemption would evict is given to `feasible` as `without`.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import numpy as np

from ..state.columns import NO_HYPOTHETICAL_PODS, NODE_NAME, Bools, Columns, Rows
from ..state.inline import Disk, conflicts
from ..state.podvolumes import ClaimKey, PodVolumes
from ..state.volumeusage import VolumeUse
from .catalogue import Catalogue
from .claims import Refused, not_found
from .records import READ_WRITE_ONCE_POD

NAME: Final = "VolumeRestrictions"
DISK_CONFLICT: Final = "node(s) had no available disk"
CLAIM_IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod"
)

_NOBODY: Final[frozenset[str]] = frozenset()


class Plan(NamedTuple):
    disks: tuple[Disk, ...]
    #: Claims that no other pod may have.
    alone: tuple[ClaimKey, ...]


def plan(volumes: PodVolumes, catalogue: Catalogue) -> Plan | Refused | None:
    """None for a pod that nothing here can keep from a node. Ephemeral claims have one pod by nature."""
    alone = []
    for use in volumes.claims:
        if use.ephemeral:
            continue
        claim = catalogue.claims.get(use.key)
        if claim is None:
            return Refused(not_found(use.key[1]))
        if READ_WRITE_ONCE_POD in claim.access_modes:
            alone.append(use.key)
    return Plan(volumes.disks, tuple(alone)) if volumes.disks or alone else None


def feasible(
    plan: Plan,
    use: VolumeUse,
    nodes: Columns,
    rows: Rows,
    *,
    without: AbstractSet[str] = _NOBODY,
    hypothetical_pods: Mapping[str, PodVolumes] = NO_HYPOTHETICAL_PODS,
) -> Bools:
    """`without`: UIDs of pods to think away; `hypothetical_pods`: pods to think of on each of `rows`."""
    if _is_used(plan, use, nodes, without, hypothetical_pods):
        return np.zeros(rows.shape[0], dtype=np.bool_)
    return ~_have_disk(plan, use, nodes, rows, without, hypothetical_pods)


def reasons(
    plan: Plan,
    use: VolumeUse,
    nodes: Columns,
    rows: Rows,
    *,
    without: AbstractSet[str] = _NOBODY,
    hypothetical_pods: Mapping[str, PodVolumes] = NO_HYPOTHETICAL_PODS,
) -> Mapping[str, int]:
    """The disk is named first, where both hold."""
    disk = int(_have_disk(plan, use, nodes, rows, without, hypothetical_pods).sum())
    counts = {DISK_CONFLICT: disk, CLAIM_IN_USE: rows.shape[0] - disk}
    return {reason: count for reason, count in counts.items() if count}


def _is_used(
    plan: Plan,
    use: VolumeUse,
    nodes: Columns,
    without: AbstractSet[str],
    hypothetical_pods: Mapping[str, PodVolumes],
) -> bool:
    """Whether another pod has one of the claims. One whose node is not there has it no more."""
    return any(
        any(
            uid not in without and _is_there(nodes, placed.node_name)
            for uid, placed in use.users(key).items()
        )
        or any(key in guest.keys for guest in hypothetical_pods.values())
        for key in plan.alone
    )


def _is_there(nodes: Columns, node_name: str) -> bool:
    names = nodes.label(NODE_NAME)[: nodes.size]  # first: it interns the names
    return bool((names == nodes.interns.known_value(node_name)).any())


def _have_disk(
    plan: Plan,
    use: VolumeUse,
    nodes: Columns,
    rows: Rows,
    without: AbstractSet[str],
    hypothetical_pods: Mapping[str, PodVolumes],
) -> Bools:
    for disk in plan.disks:
        if any(conflicts(disk, other) for guest in hypothetical_pods.values() for other in guest.disks):
            return np.ones(rows.shape[0], dtype=np.bool_)
    taken = {
        placed.node_name
        for disk in plan.disks
        for uid, placed in use.disk_users(disk)
        if uid not in without and any(conflicts(disk, other) for other in placed.volumes.disks)
    }
    found = np.zeros(rows.shape[0], dtype=np.bool_)
    if taken:
        for position, row in enumerate(rows.tolist()):
            node = nodes.nodes[row]
            found[position] = node is not None and node.name in taken
    return found
