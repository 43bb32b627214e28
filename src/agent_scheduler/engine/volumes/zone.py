"""VolumeZone: a bound volume that is labelled with zones or regions is mounted only there.

Older than a volume's node affinity, and still what in-tree volumes carry. A label may name several zones, separated
by `__`. A node without any such label belongs to a cluster without zones and takes every volume. No refusal is
resolvable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from ..state.columns import Bools, Columns, Rows
from ..state.migration import BETA_REGION, BETA_ZONE, REGION, SEPARATOR, ZONE
from ..state.podvolumes import PodVolumes
from .catalogue import Catalogue
from .claims import Refused, not_found
from .records import WAIT_FOR_CONSUMER, ClaimInfo, VolumeInfo

NAME: Final = "VolumeZone"
REASON: Final = "node(s) had no available volume zone"

TOPOLOGY_LABELS: Final = (BETA_ZONE, BETA_REGION, ZONE, REGION)
#: What a node may carry in place of a label.
_NEWER: Final = {BETA_ZONE: ZONE, BETA_REGION: REGION}


class Topology(NamedTuple):
    """A label that the node has to have, with one of the values."""

    key: str
    values: frozenset[str]


def topologies(volume: VolumeInfo) -> tuple[Topology, ...]:
    """What the volume's labels ask of a node. A label with an empty part among its values asks nothing."""
    found = []
    for key in TOPOLOGY_LABELS:
        if key in volume.labels:
            values = frozenset(part.strip() for part in volume.labels[key].split(SEPARATOR))
            if "" not in values:
                found.append(Topology(key, values))
    return tuple(found)


def plan(volumes: PodVolumes, catalogue: Catalogue) -> tuple[Topology, ...] | Refused | None:
    """What the pod's volumes ask of a node; None for nothing. Ephemeral claims are left out, as in kube-scheduler."""
    found: list[Topology] = []
    for use in volumes.claims:
        if use.ephemeral:
            continue
        claim = catalogue.claims.get(use.key)
        if claim is None:
            return Refused(not_found(use.key[1]))
        if not claim.volume_name:
            problem = _unbound_problem(claim, catalogue)
            if problem:
                return Refused(problem)
            continue
        volume = catalogue.volumes.get(claim.volume_name)
        if volume is None:
            return Refused(f'persistentvolume "{claim.volume_name}" not found')
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


def feasible(plan: tuple[Topology, ...], nodes: Columns, rows: Rows) -> Bools:
    zoned = np.zeros(rows.shape[0], dtype=np.bool_)
    for key in TOPOLOGY_LABELS:
        zoned |= nodes.label(key)[rows] != 0
    fits = np.ones(rows.shape[0], dtype=np.bool_)
    for key, values in plan:
        column = nodes.label(key)[rows]
        if key in _NEWER:
            column = np.where(column == 0, nodes.label(_NEWER[key])[rows], column)
        fits &= np.isin(column, [nodes.interns.known_value(value) for value in values])
    return fits | ~zoned


def reasons(plan: tuple[Topology, ...], nodes: Columns, rows: Rows) -> Mapping[str, int]:
    return {REASON: rows.shape[0]}
