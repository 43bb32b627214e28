"""NodeVolumeLimits: limits the volumes of a CSI driver that are attached to a node.

Handles are counted, not mounts: those of pods on the node, of claims to be provisioned for them, and of
VolumeAttachments that outlive their pods. A volume that the node already has is free; in kube-scheduler only one that a
pod there has: it counts a volume twice that the pod's predecessor left attached. In-tree volumes count for the driver
that replaced their plugin. Inline CSI volumes of a pod are not counted. Evictions can help.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import numpy as np

from ..events.hints import ClusterEventWithHint
from ..framework.handle import Handle
from ..framework.plugin import Depends, Filter
from ..state.columns import NOBODY, Bools, Columns, Rows
from ..state.podclass import PodClass
from ..state.podvolumes import PodVolumes
from ..state.volumeusage import mounts
from ..volumes.attached import Attached, VolumeId, handles
from ..volumes.catalogue import Catalogue
from ..volumes.claims import Unresolvable, not_found, not_owned
from ..volumes.hints import limit_events, volumes_of

REASON: Final = "node(s) exceed max volume count"


def plan(volumes: PodVolumes, catalogue: Catalogue) -> frozenset[VolumeId] | Unresolvable | None:
    """Return the volumes that the pod needs attached; None if no driver counts any.

    A refusal applies to each node that no other rule has refused, so the rules with better messages about claims come
    first.
    """
    for use in volumes.claims:
        claim = catalogue.claims.get(use.key)
        if claim is None:
            namespace, name = use.key
            return Unresolvable(f"looking up PVC {namespace}/{name}: {not_found(name)}")
        if use.ephemeral and (problem := not_owned(claim, volumes)):
            return Unresolvable(problem)
    return frozenset(handles(volumes, catalogue)) or None


class NodeVolumeLimitsState(NamedTuple):
    plan: frozenset[VolumeId] | Unresolvable
    attached: Attached


class NodeVolumeLimits(Filter):
    name = "NodeVolumeLimits"
    depends = Depends.USAGE
    reads_requests = False

    def __init__(self) -> None:
        #: The attachments of the current cluster.
        self._attached: Attached | None = None

    def prepare(self, pod: PodClass, handle: Handle) -> NodeVolumeLimitsState | None:
        if pod.volumes is None:
            return None
        catalogue = handle.catalogue
        found = plan(pod.volumes, catalogue)
        if found is None:
            return None
        attached, use = self._attached, handle.volume_use
        if attached is None or attached.catalogue is not catalogue or attached.use is not use:
            attached = self._attached = Attached(catalogue, use)
        return NodeVolumeLimitsState(found, attached)

    def feasible(self, state: NodeVolumeLimitsState, nodes: Columns, rows: Rows) -> Bools:
        """Return whether the volumes fit. Volumes of hypothetically removed pods count until they are detached."""
        needed_volumes, attached = state
        if isinstance(needed_volumes, Unresolvable):
            return np.zeros(rows.shape[0], dtype=np.bool_)
        catalogue, use = attached.catalogue, attached.use
        found = np.ones(rows.shape[0], dtype=np.bool_)
        needed: dict[str, set[str]] = {}
        for driver, handle in needed_volumes:
            needed.setdefault(driver, set()).add(handle)
        limits = [(each, driver) for driver in needed if (each := catalogue.limits(driver))]
        if not limits:
            return found
        needs = len(needed_volumes)
        for position, row in enumerate(rows.tolist()):
            node = nodes.nodes[row]
            if node is None:
                continue
            name = node.name
            hypothetical_pods = nodes.hypothetical_pods.get(row)
            brought = needs + sum(map(mounts, hypothetical_pods.values())) if hypothetical_pods else needs
            most = brought + use.count(name) + len(catalogue.attachments(name))
            # A plain loop because it runs per node, and usually everything fits even if no volumes are shared.
            for each, _ in limits:
                if name in each and each[name] < most:
                    there = attached.on(name, without=nodes.absent, hypothetical_pods=hypothetical_pods)
                    found[position] = all(
                        _fits(needed[driver], there.get(driver, NOBODY), limit[name])
                        for limit, driver in limits
                        if name in limit
                    )
                    break
        return found

    def reasons(self, state: NodeVolumeLimitsState, nodes: Columns, rows: Rows) -> Mapping[str, int]:
        return {state.plan.message if isinstance(state.plan, Unresolvable) else REASON: rows.shape[0]}

    def curable(self, state: NodeVolumeLimitsState, nodes: Columns, rows: Rows) -> Bools:
        return np.full(rows.shape[0], not isinstance(state.plan, Unresolvable))

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return limit_events(volumes_of)


def _fits(needed: AbstractSet[str], there: AbstractSet[str], limit: int) -> bool:
    """Return whether the volumes fit. A node over its limit accepts pods without new volumes."""
    new = len(needed - there)
    return not new or len(there) + new <= limit
