"""NodeVolumeLimits: no more volumes on a node than its drivers can attach. The rule is in `volumes.limits`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..events.hints import ClusterEventWithHint
from ..framework.handle import Handle
from ..framework.plugin import Depends, Filter
from ..state.columns import Bools, Columns, Rows
from ..state.podclass import PodClass
from ..volumes import limits
from ..volumes.attached import Attached, VolumeId
from ..volumes.claims import Refused
from ..volumes.hints import limit_events, volumes_of


class State(NamedTuple):
    plan: frozenset[VolumeId] | Refused
    attached: Attached


class NodeVolumeLimits(Filter):
    name = limits.NAME
    depends = Depends.USAGE
    reads_requests = False

    def __init__(self) -> None:
        #: Of the cluster that pods are decided for.
        self._attached: Attached | None = None

    def prepare(self, pod: PodClass, handle: Handle) -> State | None:
        if pod.volumes is None:
            return None
        catalogue = handle.catalogue
        found = limits.plan(pod.volumes, catalogue)
        if found is None:
            return None
        attached, use = self._attached, handle.volume_use
        if attached is None or attached.catalogue is not catalogue or attached.use is not use:
            attached = self._attached = Attached(catalogue, use)
        return State(found, attached)

    def feasible(self, state: State, nodes: Columns, rows: Rows) -> Bools:
        return limits.feasible(
            state.plan,
            state.attached,
            nodes,
            rows,
            without=nodes.absent,
            hypothetical_pods=nodes.hypothetical_pods,
        )

    def reasons(self, state: State, nodes: Columns, rows: Rows) -> Mapping[str, int]:
        return limits.reasons(state.plan, nodes, rows)

    def curable(self, state: State, nodes: Columns, rows: Rows) -> Bools:
        return np.full(rows.shape[0], not isinstance(state.plan, Refused))

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return limit_events(volumes_of)
