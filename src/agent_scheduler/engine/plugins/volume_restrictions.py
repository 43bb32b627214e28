"""VolumeRestrictions: disks that a node must not have twice, and claims that only one pod at a time may use.

Evictions can help with both: of the pods on the node that have an inline disk, or of the one pod that uses a
ReadWriteOncePod claim, on any node. So the answer for one row depends on all, and on hypothetical changes
(`Columns.absent`, `Columns.hypothetical_pods`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from ..events.hints import ClusterEventWithHint
from ..framework.handle import Handle
from ..framework.plugin import Depends, Filter, PodRejected
from ..state.columns import NODE_NAME, Bools, Columns, Rows
from ..state.inline import Disk, conflicts
from ..state.podclass import PodClass
from ..state.podvolumes import ClaimKey, PodVolumes
from ..state.volumeusage import VolumeUse
from ..volumes.catalogue import Catalogue
from ..volumes.claims import Unresolvable, not_found
from ..volumes.hints import restriction_events, volumes_of
from ..volumes.records import READ_WRITE_ONCE_POD

DISK_CONFLICT: Final = "node(s) had no available disk"
CLAIM_IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)


class RestrictedVolumes(NamedTuple):
    disks: tuple[Disk, ...]
    #: Claims that no other pod may use.
    alone: tuple[ClaimKey, ...]


def plan(volumes: PodVolumes, catalogue: Catalogue) -> RestrictedVolumes | Unresolvable | None:
    """Return the disks and exclusive claims of a pod; None if it has none. Ephemeral claims always have one pod."""
    alone = []
    for use in volumes.claims:
        if use.ephemeral:
            continue
        claim = catalogue.claims.get(use.key)
        if claim is None:
            return Unresolvable(not_found(use.key[1]))
        if READ_WRITE_ONCE_POD in claim.access_modes:
            alone.append(use.key)
    return RestrictedVolumes(volumes.disks, tuple(alone)) if volumes.disks or alone else None


class VolumeRestrictionsState(NamedTuple):
    plan: RestrictedVolumes
    use: VolumeUse


class VolumeRestrictions(Filter):
    name = "VolumeRestrictions"
    depends = Depends.CLUSTER
    reads_requests = False

    def prepare(self, pod: PodClass, handle: Handle) -> VolumeRestrictionsState | None:
        if pod.volumes is None:
            return None
        found = plan(pod.volumes, handle.catalogue)
        if isinstance(found, Unresolvable):
            raise PodRejected(found.message)
        return None if found is None else VolumeRestrictionsState(found, handle.volume_use)

    def feasible(self, state: VolumeRestrictionsState, nodes: Columns, rows: Rows) -> Bools:
        if _is_used(state, nodes):
            return np.zeros(rows.shape[0], dtype=np.bool_)
        return ~_have_disk(state, nodes, rows)

    def reasons(self, state: VolumeRestrictionsState, nodes: Columns, rows: Rows) -> Mapping[str, int]:
        """Count the disk as the reason where both apply."""
        disk = int(_have_disk(state, nodes, rows).sum())
        counts = {DISK_CONFLICT: disk, CLAIM_IN_USE: rows.shape[0] - disk}
        return {reason: count for reason, count in counts.items() if count}

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return restriction_events(volumes_of)


def _is_used(state: VolumeRestrictionsState, nodes: Columns) -> bool:
    """Return whether another pod uses one of the claims. A pod on a missing node does not count."""
    return any(
        any(
            uid not in nodes.absent and _is_there(nodes, placed.node_name)
            for uid, placed in state.use.users(key).items()
        )
        or any(key in other.keys for there in nodes.hypothetical_pods.values() for other in there.values())
        for key in state.plan.alone
    )


def _is_there(nodes: Columns, node_name: str) -> bool:
    names = nodes.label(NODE_NAME)[: nodes.size]  # The column comes first because it interns the names.
    return bool((names == nodes.interns.known_value(node_name)).any())


def _have_disk(state: VolumeRestrictionsState, nodes: Columns, rows: Rows) -> Bools:
    disks = state.plan.disks
    found = np.zeros(rows.shape[0], dtype=np.bool_)
    if not disks:
        return found
    hypothetical = {
        row
        for row, there in nodes.hypothetical_pods.items()
        if any(conflicts(disk, other) for disk in disks for pod in there.values() for other in pod.disks)
    }
    taken = {
        placed.node_name
        for disk in disks
        for uid, placed in state.use.disk_users(disk)
        if uid not in nodes.absent and any(conflicts(disk, other) for other in placed.volumes.disks)
    }
    if taken or hypothetical:
        for position, row in enumerate(rows.tolist()):
            node = nodes.nodes[row]
            found[position] = row in hypothetical or (node is not None and node.name in taken)
    return found
