"""VolumeBinding's score: the share of a node's storage that the pod's claims would take (KEP-4049), by a curve.

For static volumes it is the share of those that the claims get there, otherwise the share of the pools where their
volumes would be provisioned. All classes have equal weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..state.columns import Columns, Ints, Rows
from ..state.nodeinfo import NodeInfo
from ..volumes.binding import VolumePlan
from ..volumes.catalogue import Catalogue
from ..volumes.matching import find_matching_volumes
from ..volumes.provisioning import free_capacity
from .curve import FULL

#: Class -> requested and available bytes.
Shares = dict[str, tuple[int, int]]


def score(plan: VolumePlan, catalogue: Catalogue, rates: Sequence[int], nodes: Columns, rows: Rows) -> Ints:
    """Score `rows` that passed the filter; `rates` is the value of each share in percent."""
    found: Ints = np.zeros(rows.shape[0], dtype=np.int64)
    for position, row in enumerate(rows.tolist()):
        node = nodes.nodes[row]
        if node is not None:
            found[position] = _mean(rates, _shares(plan, catalogue, node).values())
    return found


def _shares(plan: VolumePlan, catalogue: Catalogue, node: NodeInfo) -> Shares:
    shares: Shares = {}
    for key, volume in (chosen := find_matching_volumes(plan.claims_to_bind, node)).items():
        asked, there = shares.get(volume.class_name, (0, 0))
        asked += catalogue.claims[key].requested or 0
        shares[volume.class_name] = asked, there + volume.capacity
    if chosen:
        return shares
    for claim in (*(claim for claim, _ in plan.selected), *(each.claim for each in plan.claims_to_bind)):
        capacity = free_capacity(claim, catalogue, node)
        if capacity is not None:
            asked, _ = shares.get(claim.class_name, (0, 0))
            # Claims of one class share its pools.
            shares[claim.class_name] = asked + (claim.requested or 0), capacity
    return shares


def _mean(rates: Sequence[int], shares: Iterable[tuple[int, int]]) -> int:
    found = [rates[FULL if asked > there or not there else asked * FULL // there] for asked, there in shares]
    return (2 * sum(found) + len(found)) // (2 * len(found)) if found else 0
