"""Static volumes for claims that wait for a consumer: which volume a claim gets on which node.

The rule is the volume controller's, so that the two agree (`FindMatchingVolume` of component-helpers): a volume
that is meant for the claim is the only one it may have; else it gets the smallest of those that any claim may have, of
its class, size, mode, access modes and selector, that the node can reach. Claims choose in the order of their sizes,
and a volume goes to one of them.

`matched` answers for many nodes by counting, `choose` names the volumes for one node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..columns import Bools, Columns, Rows
from ..nodeinfo import NodeInfo
from .catalogue import Catalogue
from .podvolumes import ClaimKey
from .reach import Shelf
from .records import ClaimInfo, VolumeInfo


class Wanted(NamedTuple):
    """A claim and the volumes that it could have on some node, best first."""

    claim: ClaimInfo
    volumes: tuple[VolumeInfo, ...]
    shelf: Shelf


def wanted(claims: Sequence[ClaimInfo], catalogue: Catalogue) -> tuple[Wanted, ...]:
    """The claims in the order in which they choose."""
    ordered = sorted(claims, key=lambda claim: claim.requested or 0)
    found = []
    for claim in ordered:
        volumes = _candidates(claim, catalogue)
        found.append(Wanted(claim, volumes, Shelf(volume.reach for volume in volumes)))
    return tuple(found)


def _candidates(claim: ClaimInfo, catalogue: Catalogue) -> tuple[VolumeInfo, ...]:
    meant = tuple(
        volume
        for volume in catalogue.meant_for(claim)
        if volume.class_name == claim.class_name and _could_hold(volume, claim) and not volume.deleting
    )
    if meant:
        return meant
    return tuple(
        volume
        for volume in catalogue.free(claim.class_name)
        if _could_hold(volume, claim)
        and volume.attributes_class == claim.attributes_class
        and (claim.selector is None or claim.selector.matches(volume.labels))
        and claim.access_modes <= volume.access_modes
    )


def _could_hold(volume: VolumeInfo, claim: ClaimInfo) -> bool:
    return volume.capacity >= (claim.requested or 0) and volume.volume_mode == claim.volume_mode


def matched(claims: Sequence[Wanted], nodes: Columns, rows: Rows) -> list[Bools]:
    """For each claim, on which of `rows` it gets a volume."""
    found: list[Bools] = []
    unsure = np.zeros(rows.shape[0], dtype=np.bool_)
    for index, each in enumerate(claims):
        count = each.shelf.counts(nodes, rows)
        names = {volume.name for volume in each.volumes} if index else ()
        rivals = sum(any(volume.name in names for volume in earlier.volumes) for earlier in claims[:index])
        # With more volumes than claims that chose before, one is left for sure.
        unsure |= (count > 0) & (count <= rivals)
        found.append(count > 0)
    for position in np.flatnonzero(unsure).tolist():
        node = nodes.nodes[rows[position]]
        chosen = choose(claims, node) if node is not None else {}
        for each, mask in zip(claims, found, strict=True):
            mask[position] = each.claim.key in chosen
    return found


def choose(claims: Sequence[Wanted], node: NodeInfo) -> Mapping[ClaimKey, VolumeInfo]:
    """The volume of each claim that gets one on `node`."""
    chosen: dict[ClaimKey, VolumeInfo] = {}
    gone: set[str] = set()
    for each in claims:
        for position in each.shelf.at(node):
            volume = each.volumes[position]
            if volume.name not in gone:
                chosen[each.claim.key] = volume
                gone.add(volume.name)
                break
    return chosen
