"""Volumes that would have to be made: whether a class's provisioner may make one for a node, and has the room.

A CSI driver that tells its capacity (`CSIDriver.spec.storageCapacity`) is believed: without a CSIStorageCapacity object
of the class that the node has access to and that is large enough, nothing can be made there (KEP-1472).
"""

from __future__ import annotations

import numpy as np

from ..state.columns import Bools, Columns, Rows
from ..state.nodeinfo import NodeInfo
from ..state.nodeselection import reached, reaches
from .candidate_index import CandidateIndex
from .catalogue import Catalogue
from .records import CapacityInfo, ClaimInfo

#: What classes without a provisioner say: their volumes are made by hand.
NO_PROVISIONER = "kubernetes.io/no-provisioner"


def may_provision(claim: ClaimInfo, catalogue: Catalogue, nodes: Columns, rows: Rows) -> Bools:
    """On which of `rows` the claim's class lets a volume be made, room aside."""
    found = catalogue.classes.get(claim.class_name)
    if found is None or found.provisioner in ("", NO_PROVISIONER):
        return np.zeros(rows.shape[0], dtype=np.bool_)
    return reached(found.reach, nodes, rows)


def has_room(claim: ClaimInfo, catalogue: Catalogue, nodes: Columns, rows: Rows) -> Bools:
    """On which of `rows` the provisioner can make a volume of the claim's size."""
    pools = _pools(claim, catalogue)
    if pools is None:
        return np.ones(rows.shape[0], dtype=np.bool_)
    return pools.counts(nodes, rows) > 0


def can_make(claim: ClaimInfo, catalogue: Catalogue, node: NodeInfo) -> bool:
    """`may_provision` and `has_room` for one node."""
    found = catalogue.classes.get(claim.class_name)
    if found is None or found.provisioner in ("", NO_PROVISIONER) or not reaches(found.reach, node):
        return False
    pools = _pools(claim, catalogue)
    return pools is None or any(True for _ in pools.at(node))


def room_for(claim: ClaimInfo, catalogue: Catalogue, node: NodeInfo) -> int | None:
    """The room in a pool where the claim's volume could be made; None where nobody counts, or there is none."""
    pools = _pools(claim, catalogue)
    return None if pools is None else next((pool.room for pool in pools.at(node)), None)


def _pools(claim: ClaimInfo, catalogue: Catalogue) -> CandidateIndex[CapacityInfo] | None:
    """The pools that are large enough; None where nobody counts."""
    found = catalogue.classes.get(claim.class_name)
    driver = catalogue.drivers.get(found.provisioner) if found is not None else None
    if claim.requested is None or driver is None or not driver.tells_capacity:
        return None
    return catalogue.pools(claim.class_name, claim.requested)
