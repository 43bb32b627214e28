"""VolumeZone: a bound volume with zone or region labels is mounted only there.

This is older than a volume's node affinity, and in-tree volumes still have these labels. A label may have several
zones, separated by `__`. A node without any such label is in a cluster without zones and accepts every volume. No
refusal is resolvable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..events.hints import ClusterEventWithHint
from ..framework.handle import Handle
from ..framework.plugin import Depends, Filter, PodRejected
from ..state.columns import Bools, Columns, Rows
from ..state.migration import BETA_REGION, BETA_ZONE, REGION, ZONE
from ..state.podclass import PodClass
from ..state.podvolumes import PodVolumes
from ..volumes.catalogue import Catalogue
from ..volumes.claims import Unresolvable, not_found
from ..volumes.hints import TOPOLOGY_LABELS, Topology, topologies, volumes_of, zone_events
from ..volumes.records import WAIT_FOR_CONSUMER, ClaimInfo

REASON: Final = "node(s) had no available volume zone"

#: Newer labels that a node may have instead.
_NEWER: Final = {BETA_ZONE: ZONE, BETA_REGION: REGION}


def plan(volumes: PodVolumes, catalogue: Catalogue) -> tuple[Topology, ...] | Unresolvable | None:
    """Return the topologies that the pod's volumes require; None for none.

    Ephemeral claims are left out, as in kube-scheduler.
    """
    found: list[Topology] = []
    for use in volumes.claims:
        if use.ephemeral:
            continue
        claim = catalogue.claims.get(use.key)
        if claim is None:
            return Unresolvable(not_found(use.key[1]))
        if not claim.volume_name:
            problem = _unbound_problem(claim, catalogue)
            if problem:
                return Unresolvable(problem)
            continue
        volume = catalogue.volumes.get(claim.volume_name)
        if volume is None:
            return Unresolvable(f'persistentvolume "{claim.volume_name}" not found')
        found += topologies(volume)
    return tuple(found) or None


def _unbound_problem(claim: ClaimInfo, catalogue: Catalogue) -> str:
    if not claim.class_name:
        return "PersistentVolumeClaim had no pv name and storageClass name"
    found = catalogue.classes.get(claim.class_name)
    if found is None:
        return f'storageclass.storage.k8s.io "{claim.class_name}" not found'
    if found.binding_mode is None:
        return f'VolumeBindingMode not set for StorageClass "{claim.class_name}"'
    return "" if found.binding_mode == WAIT_FOR_CONSUMER else "PersistentVolume had no name"


class VolumeZone(Filter):
    name = "VolumeZone"
    depends = Depends.NODE
    reads_requests = False
    reason = REASON

    def prepare(self, pod: PodClass, handle: Handle) -> tuple[Topology, ...] | None:
        if pod.volumes is None:
            return None
        found = plan(pod.volumes, handle.catalogue)
        if isinstance(found, Unresolvable):
            raise PodRejected(found.message)
        return found

    def feasible(self, state: tuple[Topology, ...], nodes: Columns, rows: Rows) -> Bools:
        zoned = np.zeros(rows.shape[0], dtype=np.bool_)
        for key in TOPOLOGY_LABELS:
            zoned |= nodes.label(key)[rows] != 0
        fits = np.ones(rows.shape[0], dtype=np.bool_)
        for key, values in state:
            column = nodes.label(key)[rows]
            if key in _NEWER:
                column = np.where(column == 0, nodes.label(_NEWER[key])[rows], column)
            fits &= np.isin(column, [nodes.interns.known_value(value) for value in values])
        return fits | ~zoned

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return zone_events(volumes_of)
