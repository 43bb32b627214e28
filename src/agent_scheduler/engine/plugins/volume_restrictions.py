"""VolumeRestrictions: no disk twice on a node, no ReadWriteOncePod claim for two pods. See `volumes.restrictions`.

The pod that has a claim may be on any node, so the answer for one row depends on all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..events.hints import ClusterEventWithHint
from ..framework.handle import Handle
from ..framework.plugin import Depends, Filter, PodRejected
from ..state.columns import Bools, Columns, Rows
from ..state.podclass import PodClass
from ..state.volumeusage import VolumeUse
from ..volumes import restrictions
from ..volumes.claims import Refused
from ..volumes.hints import restriction_events, volumes_of


class State(NamedTuple):
    plan: restrictions.Plan
    use: VolumeUse


class VolumeRestrictions(Filter):
    name = restrictions.NAME
    depends = Depends.CLUSTER
    reads_requests = False

    def prepare(self, pod: PodClass, handle: Handle) -> State | None:
        if pod.volumes is None:
            return None
        found = restrictions.plan(pod.volumes, handle.catalogue)
        if isinstance(found, Refused):
            raise PodRejected(found.message)
        return None if found is None else State(found, handle.volume_use)

    def feasible(self, state: State, nodes: Columns, rows: Rows) -> Bools:
        return restrictions.feasible(
            state.plan,
            state.use,
            nodes,
            rows,
            without=nodes.absent,
            hypothetical_pods=nodes.hypothetical_pods,
        )

    def reasons(self, state: State, nodes: Columns, rows: Rows) -> Mapping[str, int]:
        return restrictions.reasons(
            state.plan,
            state.use,
            nodes,
            rows,
            without=nodes.absent,
            hypothetical_pods=nodes.hypothetical_pods,
        )

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return restriction_events(volumes_of)
