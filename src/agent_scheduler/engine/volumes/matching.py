"""Static volumes for claims that wait for a consumer: the volume of each claim on each node.

The rule is the volume controller's, so that the two agree (`FindMatchingVolume` of component-helpers): a volume that is
prebound to the claim is the only one it may use, if its classes, size and mode match; otherwise it gets the smallest
unclaimed volume that matches in classes, size, mode, access modes and selector and that the node can reach. Smaller
claims come first, and a volume goes to one claim.

`matching_nodes` answers for many nodes by counting, `find_matching_volumes` returns the volumes of one node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..state.columns import Bools, Columns, Rows
from ..state.nodeinfo import NodeInfo
from ..state.podvolumes import ClaimKey
from .candidate_index import CandidateIndex
from .catalogue import Catalogue
from .records import ClaimInfo, VolumeDemand, VolumeInfo, could_hold


class ClaimToBind(NamedTuple):
    """A claim and the volumes that it could use on some node, best first."""

    claim: ClaimInfo
    candidates: CandidateIndex[VolumeInfo]
    #: Whether the volumes are for this claim alone.
    prebound: bool


def claims_to_bind(claims: Sequence[ClaimInfo], catalogue: Catalogue) -> tuple[ClaimToBind, ...]:
    """Return the claims with their volumes, those that request less storage first."""
    ordered = sorted(claims, key=lambda claim: claim.requested or 0)
    return tuple(_wanted(claim, catalogue) for claim in ordered)


def _wanted(claim: ClaimInfo, catalogue: Catalogue) -> ClaimToBind:
    size, mode = claim.requested or 0, claim.volume_mode
    prebound = [
        volume
        for volume in catalogue.prebound_for(claim)
        if volume.class_name == claim.class_name
        and volume.attributes_class == claim.attributes_class
        and could_hold(volume, size, mode)
        and not volume.deleting
    ]
    if prebound:
        index: CandidateIndex[VolumeInfo] = CandidateIndex()
        for place, volume in enumerate(prebound):
            index.put((place,), volume)
        return ClaimToBind(claim, index, True)
    demand = VolumeDemand(size, mode, claim.access_modes, claim.attributes_class, claim.selector)
    return ClaimToBind(claim, catalogue.free.index(claim.class_name, demand), False)


def matching_nodes(claims: Sequence[ClaimToBind], nodes: Columns, rows: Rows) -> list[Bools]:
    """Return for each claim on which of `rows` it gets a volume."""
    found: list[Bools] = []
    unsure = np.zeros(rows.shape[0], dtype=np.bool_)
    for index, each in enumerate(claims):
        count = each.candidates.counts(nodes, rows)
        rivals = sum(_may_take_from(earlier, each) for earlier in claims[:index])
        # With more volumes than earlier claims, at least one is left.
        unsure |= (count > 0) & (count <= rivals)
        found.append(count > 0)
    for position in np.flatnonzero(unsure).tolist():
        node = nodes.nodes[rows[position]]
        chosen = find_matching_volumes(claims, node) if node is not None else {}
        for each, mask in zip(claims, found, strict=True):
            mask[position] = each.claim.key in chosen
    return found


def _may_take_from(one: ClaimToBind, other: ClaimToBind) -> bool:
    return not one.prebound and not other.prebound and one.claim.class_name == other.claim.class_name


def find_matching_volumes(claims: Sequence[ClaimToBind], node: NodeInfo) -> Mapping[ClaimKey, VolumeInfo]:
    """Return the volume of each claim that gets one on `node`."""
    chosen: dict[ClaimKey, VolumeInfo] = {}
    gone: set[str] = set()
    for each in claims:
        for volume in each.candidates.at(node):
            if volume.name not in gone:
                chosen[each.claim.key] = volume
                gone.add(volume.name)
                break
    return chosen
