"""NodeVolumeLimits: a node can have so many volumes of a CSI driver attached, and no more.

Counted are handles, not mounts: those of pods on the node, of claims that are still to be provisioned for them, and of
VolumeAttachments that are still there after their pods. A volume that the node has already costs nothing, which
kube-scheduler says only of those that a pod there has: it counts one twice that the pod's predecessor left attached.
In-tree volumes count for the driver that took over their plugin. Volumes that a pod describes inline for a CSI driver
count for nobody. Evicting pods can help.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np

from ..state.columns import NO_HYPOTHETICAL_PODS, Bools, Columns, Rows
from ..state.podvolumes import PodVolumes
from ..state.volumeusage import mounts
from .attached import Attached, VolumeId, handles
from .catalogue import Catalogue
from .claims import Refused, not_found, not_owned

NAME: Final = "NodeVolumeLimits"
REASON: Final = "node(s) exceed max volume count"

_NOBODY: Final[frozenset[str]] = frozenset()


def plan(volumes: PodVolumes, catalogue: Catalogue) -> frozenset[VolumeId] | Refused | None:
    """What the pod needs attached; None for nothing that a driver counts. A refusal is told of each node that no other
    rule has refused, so the rules that say better what is wrong with a claim come first."""
    for use in volumes.claims:
        claim = catalogue.claims.get(use.key)
        if claim is None:
            namespace, name = use.key
            return Refused(f"looking up PVC {namespace}/{name}: {not_found(name)}")
        if use.ephemeral and (problem := not_owned(claim, volumes)):
            return Refused(problem)
    return frozenset(handles(volumes, catalogue)) or None


def feasible(
    plan: frozenset[VolumeId] | Refused,
    attached: Attached,
    nodes: Columns,
    rows: Rows,
    *,
    without: AbstractSet[str] = _NOBODY,
    hypothetical_pods: Mapping[str, PodVolumes] = NO_HYPOTHETICAL_PODS,
) -> Bools:
    """`without`: UIDs of pods to think away; what is attached for them stays attached until it is detached.
    `hypothetical_pods`: pods to think of on each of `rows`."""
    if isinstance(plan, Refused):
        return np.zeros(rows.shape[0], dtype=np.bool_)
    catalogue, use = attached.catalogue, attached.use
    found = np.ones(rows.shape[0], dtype=np.bool_)
    needed: dict[str, set[str]] = {}
    for driver, handle in plan:
        needed.setdefault(driver, set()).add(handle)
    limits = [(each, driver) for driver in needed if (each := catalogue.limits(driver))]
    if not limits:
        return found
    brought = len(plan) + sum(map(mounts, hypothetical_pods.values()))
    for position, row in enumerate(rows.tolist()):
        node = nodes.nodes[row]
        if node is None:
            continue
        name = node.name
        most = brought + use.count(name) + len(catalogue.attachments(name))
        # Plain loop: this runs once a node, and mostly all of it fits even if no two volumes were one.
        for each, _ in limits:
            if name in each and each[name] < most:
                there = attached.on(name, without=without, hypothetical_pods=hypothetical_pods)
                found[position] = all(
                    _fits(needed[driver], there.get(driver, _NOBODY), limit[name])
                    for limit, driver in limits
                    if name in limit
                )
                break
    return found


def _fits(needed: AbstractSet[str], there: AbstractSet[str], limit: int) -> bool:
    """A node that is over its limit takes whoever brings nothing new."""
    new = len(needed - there)
    return not new or len(there) + new <= limit


def reasons(plan: frozenset[VolumeId] | Refused, nodes: Columns, rows: Rows) -> Mapping[str, int]:
    return {plan.message if isinstance(plan, Refused) else REASON: rows.shape[0]}
