"""NodeVolumeLimits: a node can have so many volumes of a CSI driver attached, and no more.

Counted are handles, not mounts: those of pods on the node, of claims that are still to be provisioned for them, and of
VolumeAttachments that are still there after their pods. A volume that the node has already costs nothing, which
kube-scheduler says only of those that a pod there has: it counts one twice that the pod's predecessor left attached.
In-tree volumes count for the driver that took over their plugin. Volumes that a pod describes inline for a CSI driver
count for nobody. Evicting pods can help.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np

from ..columns import Bools, Columns, Rows
from .catalogue import Catalogue
from .claims import Refused, not_found, not_owned
from .migration import CSI_DRIVERS
from .podvolumes import PodVolumes
from .records import ClaimInfo
from .usage import VolumeUse

NAME: Final = "NodeVolumeLimits"
REASON: Final = "node(s) exceed max volume count"

_NOBODY: Final[frozenset[str]] = frozenset()

#: (driver, handle): the volume as the driver knows it.
Handle = tuple[str, str]


def plan(volumes: PodVolumes, catalogue: Catalogue) -> frozenset[Handle] | Refused | None:
    """What the pod needs attached; None for nothing that a driver counts. A refusal is told of each node that no other
    rule has refused, so the rules that say better what is wrong with a claim come first."""
    for use in volumes.claims:
        claim = catalogue.claims.get(use.key)
        if claim is None:
            namespace, name = use.key
            return Refused(f"looking up PVC {namespace}/{name}: {not_found(name)}")
        if use.ephemeral and (problem := not_owned(claim, volumes)):
            return Refused(problem)
    return frozenset(_handles(volumes, catalogue)) or None


def feasible(
    plan: frozenset[Handle] | Refused,
    catalogue: Catalogue,
    use: VolumeUse,
    nodes: Columns,
    rows: Rows,
    *,
    without: AbstractSet[str] = _NOBODY,
) -> Bools:
    """`without`: UIDs of pods to think away. What is attached for them stays attached until it is detached."""
    if isinstance(plan, Refused):
        return np.zeros(rows.shape[0], dtype=np.bool_)
    found = np.ones(rows.shape[0], dtype=np.bool_)
    limits = [each for driver in {driver for driver, _ in plan} if (each := catalogue.limits(driver))]
    if not limits:
        return found
    for position, row in enumerate(rows.tolist()):
        node = nodes.nodes[row]
        if node is None:
            continue
        most = len(plan) + use.count(node.name) + len(catalogue.attachments(node.name))
        # Plain loop: this runs once a node, and nearly always all of it fits even if no two volumes were one.
        for each in limits:
            if node.name in each and each[node.name] < most:
                found[position] = _fits(plan, catalogue, use, node.name, without)
                break
    return found


def reasons(plan: frozenset[Handle] | Refused, nodes: Columns, rows: Rows) -> Mapping[str, int]:
    return {plan.message if isinstance(plan, Refused) else REASON: rows.shape[0]}


def _fits(
    plan: frozenset[Handle], catalogue: Catalogue, use: VolumeUse, node_name: str, without: AbstractSet[str]
) -> bool:
    limits = catalogue.csi_nodes[node_name].limits
    there: set[Handle] = set()
    for uid, volumes in use.on(node_name).items():
        if uid not in without:
            there.update(_handles(volumes, catalogue))
    for attachment in catalogue.attachments(node_name):
        volume = catalogue.volumes.get(attachment.volume_name)
        # An inline volume is counted with its pod, and so is an in-tree volume, whose attachment tells no handle.
        if volume is not None and volume.handle and not volume.plugin:
            there.add((attachment.driver, volume.handle))
    return all(
        driver not in limits
        or not any(each == driver for each, _ in plan - there)
        or sum(each == driver for each, _ in plan | there) <= limits[driver]
        for driver in {driver for driver, _ in plan}
    )


def _handles(volumes: PodVolumes, catalogue: Catalogue) -> Iterable[Handle]:
    for use in volumes.claims:
        claim = catalogue.claims.get(use.key)
        handle = _claim_handle(claim, catalogue) if claim is not None else None
        if handle is not None:
            yield handle
    for inline in volumes.in_tree:
        yield inline.driver, inline.handle


def _claim_handle(claim: ClaimInfo, catalogue: Catalogue) -> Handle | None:
    volume = catalogue.volumes.get(claim.volume_name) if claim.volume_name else None
    if volume is not None:
        return (volume.driver, volume.handle) if volume.driver and volume.handle else None
    found = catalogue.classes.get(claim.class_name)
    if found is None or not found.provisioner:
        return None
    # It has no handle yet; no driver's handle has a NUL.
    handle = f"\0{claim.namespace}/{claim.name}"
    return CSI_DRIVERS.get(found.provisioner, found.provisioner), handle
