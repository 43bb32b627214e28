"""VolumeBinding's filter: the nodes where all of a pod's claims, bound or unbound, can be satisfied.

`plan` is called once per pod class and version of the `Catalogue`, `judge` for rows. On a node, the volume of a bound
claim has to be reachable; an unbound one of a class that waits for its consumer gets a static volume (`matching`) or
else a provisioned one (`provisioning`). A claim that a provisioner already works on for a node
(`volume.kubernetes.io/selected-node`) can only be satisfied on that node.

A node can be refused for two reasons at once, as in kube-scheduler: the message counts both. No refusal is resolvable:
evictions neither move volumes nor free storage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from ..state.columns import NODE_NAME, Bools, Columns, Rows
from ..state.nodeselection import reached
from ..state.podvolumes import PodVolumes
from .catalogue import Catalogue
from .claims import Unresolvable, pod_volume_claims
from .matching import ClaimToBind, claims_to_bind, matching_nodes
from .provisioning import class_provisions, has_enough_capacity
from .records import ClaimInfo, VolumeInfo

NAME: Final = "VolumeBinding"

NODE_CONFLICT: Final = "node(s) had volume node affinity conflict"
BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE: Final = "node(s) did not have enough free storage"
PV_NOT_EXIST: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


class VolumePlan(NamedTuple):
    """The requirements of a pod on any node. Valid for one version of the `Catalogue`."""

    #: The volume of each bound claim; None for one that does not exist.
    bound: tuple[VolumeInfo | None, ...]
    #: Claims that a provisioner already works on, each with the node.
    selected: tuple[tuple[ClaimInfo, str], ...]
    #: Claims for which a static volume is searched first.
    claims_to_bind: tuple[ClaimToBind, ...]

    @property
    def all_bound(self) -> bool:
        """Whether nothing has to be reserved or awaited."""
        return not (self.selected or self.claims_to_bind)


class Judgement(NamedTuple):
    """For each reason, the rows where it applies."""

    node_conflict: Bools
    bind_conflict: Bools
    not_enough_space: Bools
    pv_not_exist: Bools

    @property
    def feasible(self) -> Bools:
        refused: Bools = self.node_conflict | self.bind_conflict | self.not_enough_space | self.pv_not_exist
        return ~refused


def plan(volumes: PodVolumes, catalogue: Catalogue) -> VolumePlan | Unresolvable | None:
    """Return the requirements of a pod's claims; None for a pod without claims."""
    if not volumes.claims:
        return None
    claims = pod_volume_claims(volumes, catalogue)
    if isinstance(claims, Unresolvable):
        return claims
    selected, choosing = [], []
    for claim in claims.unbound_claims_delay_binding:
        node_name = catalogue.selected_node(claim)
        if node_name is None:
            choosing.append(claim)
        else:
            selected.append((claim, node_name))
    return VolumePlan(
        tuple(catalogue.volumes.get(claim.volume_name) for claim in claims.bound_claims),
        tuple(selected),
        claims_to_bind(choosing, catalogue),
    )


def judge(plan: VolumePlan, catalogue: Catalogue, nodes: Columns, rows: Rows) -> Judgement:
    none = np.zeros(rows.shape[0], dtype=np.bool_)
    found = Judgement(none, none.copy(), none.copy(), none.copy())
    _judge_bound(plan, catalogue, nodes, rows, found)
    _judge_waiting(plan, catalogue, nodes, rows, found)
    return found


def feasible(plan: VolumePlan, catalogue: Catalogue, nodes: Columns, rows: Rows) -> Bools:
    return judge(plan, catalogue, nodes, rows).feasible


def reasons(plan: VolumePlan, catalogue: Catalogue, nodes: Columns, rows: Rows) -> Mapping[str, int]:
    """Return the number of `rows` for each reason; a row with two reasons counts for both."""
    found = judge(plan, catalogue, nodes, rows)
    words = zip((NODE_CONFLICT, BIND_CONFLICT, NOT_ENOUGH_SPACE, PV_NOT_EXIST), found, strict=True)
    return {reason: count for reason, mask in words if (count := int(mask.sum()))}


def _judge_bound(plan: VolumePlan, catalogue: Catalogue, nodes: Columns, rows: Rows, found: Judgement) -> None:
    """Judge the bound claims. The first claim in the spec with an unreachable volume determines the reason."""
    still = np.ones(rows.shape[0], dtype=np.bool_)
    for volume in plan.bound:
        if volume is None:
            found.pv_not_exist[still] = True
            return
        here = _reached(volume, catalogue, nodes, rows)
        found.node_conflict[~here] = True
        still &= here


def _reached(volume: VolumeInfo, catalogue: Catalogue, nodes: Columns, rows: Rows) -> Bools:
    here = reached(volume.reach, nodes, rows)
    if volume.migrated_reach is volume.reach:
        return here
    migrated = catalogue.migrated_on(volume.plugin)
    if not migrated:
        return here
    # The column comes first because it interns the names that are then looked up.
    names = nodes.label(NODE_NAME)[rows]
    there = np.isin(names, [nodes.interns.known_value(name) for name in migrated])
    return np.where(there, reached(volume.migrated_reach, nodes, rows), here)


def _judge_waiting(plan: VolumePlan, catalogue: Catalogue, nodes: Columns, rows: Rows, found: Judgement) -> None:
    if plan.all_bound:
        return
    still = np.ones(rows.shape[0], dtype=np.bool_)
    for _, node_name in plan.selected:
        names = nodes.label(NODE_NAME)[rows]
        still &= names == nodes.interns.known_value(node_name)
    found.bind_conflict[~still] = True
    # A claim is provisioned if no static volume was found; the first that cannot be determines the reason.
    to_make = [(claim, np.ones_like(still)) for claim, _ in plan.selected]
    static = matching_nodes(plan.claims_to_bind, nodes, rows)
    to_make += [(each.claim, ~mask) for each, mask in zip(plan.claims_to_bind, static, strict=True)]
    for claim, needed in to_make:
        needed = needed & still
        if not needed.any():
            continue
        allowed = class_provisions(claim, catalogue, nodes, rows)
        found.bind_conflict[needed & ~allowed] = True
        needed &= allowed
        enough = has_enough_capacity(claim, catalogue, nodes, rows)
        found.not_enough_space[needed & ~enough] = True
        still &= ~needed | enough
        still &= ~found.bind_conflict
