"""Dynamic provisioning: whether a class allows volumes for a node, and whether its driver has enough storage.

A CSI driver that reports its capacity (`CSIDriver.spec.storageCapacity`) is relied on: without a CSIStorageCapacity
object of the class that the node has access to and that is large enough, nothing can be provisioned there (KEP-1472).
"""

from __future__ import annotations

import numpy as np

from ..state.columns import Bools, Columns, Rows
from ..state.nodeinfo import NodeInfo
from ..state.nodeselection import reached, reaches
from .candidate_index import CandidateIndex
from .catalogue import Catalogue
from .records import CapacityInfo, ClaimInfo

#: The provisioner of classes whose volumes are created manually.
NO_PROVISIONER = "kubernetes.io/no-provisioner"


def class_provisions(claim: ClaimInfo, catalogue: Catalogue, nodes: Columns, rows: Rows) -> Bools:
    """Return on which of `rows` the claim's class has a provisioner and allows the topology, whatever the capacity."""
    found = catalogue.classes.get(claim.class_name)
    if found is None or found.provisioner in ("", NO_PROVISIONER):
        return np.zeros(rows.shape[0], dtype=np.bool_)
    return reached(found.reach, nodes, rows)


def has_enough_capacity(claim: ClaimInfo, catalogue: Catalogue, nodes: Columns, rows: Rows) -> Bools:
    """Return on which of `rows` the provisioner can create a volume of the claim's size."""
    capacities = _capacities(claim, catalogue)
    if capacities is None:
        return np.ones(rows.shape[0], dtype=np.bool_)
    return capacities.counts(nodes, rows) > 0


def can_provision(claim: ClaimInfo, catalogue: Catalogue, node: NodeInfo) -> bool:
    """Return `class_provisions` and `has_enough_capacity` for one node."""
    found = catalogue.classes.get(claim.class_name)
    if found is None or found.provisioner in ("", NO_PROVISIONER) or not reaches(found.reach, node):
        return False
    capacities = _capacities(claim, catalogue)
    return capacities is None or any(True for _ in capacities.at(node))


def free_capacity(claim: ClaimInfo, catalogue: Catalogue, node: NodeInfo) -> int | None:
    """Return the bytes of the first CSIStorageCapacity where the claim's volume could be provisioned.

    None if there is none, or the driver reports no capacity.
    """
    capacities = _capacities(claim, catalogue)
    return None if capacities is None else next((each.capacity for each in capacities.at(node)), None)


def _capacities(claim: ClaimInfo, catalogue: Catalogue) -> CandidateIndex[CapacityInfo] | None:
    """Return the CSIStorageCapacity objects that are large enough; None if the driver reports no capacity."""
    found = catalogue.classes.get(claim.class_name)
    driver = catalogue.drivers.get(found.provisioner) if found is not None else None
    if claim.requested is None or driver is None or not driver.tells_capacity:
        return None
    return catalogue.capacities.index(claim.class_name, claim.requested)
