"""NodeVolumeLimits: a node can have so many volumes of a CSI driver attached, and no more.

Counted are handles, not mounts: those of pods on the node, of claims that are still to be provisioned for them, and of
VolumeAttachments that are still there after their pods. A volume that the node has already costs nothing. In-tree
volumes count where the node's drivers have taken over their plugin (KEP-625). Evicting pods can help.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np

from ..columns import Bools, Columns, Rows
from .catalogue import Catalogue
from .claims import Refused, not_found, not_owned
from .inline import CSI_DRIVERS
from .podvolumes import PodVolumes
from .records import ClaimInfo
from .usage import VolumeUse

NAME: Final = "NodeVolumeLimits"
REASON: Final = "node(s) exceed max volume count"

_NOBODY: Final[frozenset[str]] = frozenset()

#: (driver, handle, plugin): the volume as the driver knows it; `plugin` is empty unless it has to be taken over first.
Handle = tuple[str, str, str]


def plan(volumes: PodVolumes, catalogue: Catalogue) -> frozenset[Handle] | Refused | None:
    """What the pod needs attached; None for nothing that a driver counts."""
    for use in volumes.claims:
        claim = catalogue.claims.get(use.key)
        if claim is None:
            namespace, name = use.key
            return Refused(f"looking up PVC {namespace}/{name}: {not_found(name)}")
        if use.ephemeral and (problem := not_owned(claim, volumes)):
            return Refused(problem)
    return frozenset(_handles(volumes, catalogue)) or None


def feasible(
    plan: frozenset[Handle],
    catalogue: Catalogue,
    use: VolumeUse,
    nodes: Columns,
    rows: Rows,
    *,
    without: AbstractSet[str] = _NOBODY,
) -> Bools:
    """`without`: UIDs of pods to think away. What is attached for them stays attached until it is detached."""
    found = np.ones(rows.shape[0], dtype=np.bool_)
    limits = [each for driver in {driver for driver, _, _ in plan} if (each := catalogue.limits(driver))]
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


def reasons(plan: frozenset[Handle], nodes: Columns, rows: Rows) -> Mapping[str, int]:
    return {REASON: rows.shape[0]}


def _fits(
    plan: frozenset[Handle], catalogue: Catalogue, use: VolumeUse, node_name: str, without: AbstractSet[str]
) -> bool:
    node = catalogue.csi_nodes[node_name]
    needed = _served(plan, node.migrated)
    pods = [volumes for uid, volumes in use.on(node_name).items() if uid not in without]
    # An inline volume is counted with its pod; its attachment names no PersistentVolume.
    attachments = [each for each in catalogue.attachments(node_name) if each.volume_name]
    there: set[tuple[str, str]] = set()
    for each in pods:
        there |= _served(_handles(each, catalogue), node.migrated)
    for attachment in attachments:
        volume = catalogue.volumes.get(attachment.volume_name)
        # One whose volume is unknown is something attached all the same.
        there.add((attachment.driver, volume.handle if volume is not None else f"\0{attachment.name}"))
    return all(
        driver not in node.limits
        or not any(each == driver for each, _ in needed - there)
        or sum(each == driver for each, _ in needed | there) <= node.limits[driver]
        for driver in {driver for driver, _ in needed}
    )


def _served(handles: Iterable[Handle], migrated: frozenset[str]) -> set[tuple[str, str]]:
    """(driver, handle) of the volumes that a CSI driver serves on a node."""
    return {(driver, handle) for driver, handle, plugin in handles if not plugin or plugin in migrated}


def _handles(volumes: PodVolumes, catalogue: Catalogue) -> Iterable[Handle]:
    for use in volumes.claims:
        claim = catalogue.claims.get(use.key)
        handle = _claim_handle(claim, catalogue) if claim is not None else None
        if handle is not None:
            yield handle
    for inline in volumes.in_tree:
        yield inline.driver, inline.handle, inline.plugin


def _claim_handle(claim: ClaimInfo, catalogue: Catalogue) -> Handle | None:
    volume = catalogue.volumes.get(claim.volume_name) if claim.volume_name else None
    if volume is not None:
        return (volume.driver, volume.handle, volume.plugin) if volume.driver and volume.handle else None
    found = catalogue.classes.get(claim.class_name)
    if found is None or not found.provisioner:
        return None
    # It has no handle yet; no driver's handle has a NUL.
    handle = f"\0{claim.namespace}/{claim.name}"
    if found.provisioner in CSI_DRIVERS:
        return CSI_DRIVERS[found.provisioner], handle, found.provisioner
    return found.provisioner, handle, ""
