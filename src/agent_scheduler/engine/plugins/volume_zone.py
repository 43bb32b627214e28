"""VolumeZone: a pod goes to the zones that its volumes are labelled with. The rule is in `volumes.zone`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..events.hints import ClusterEventWithHint
from ..framework.handle import Handle
from ..framework.plugin import Depends, Filter, PodRejected
from ..state.columns import Bools, Columns, Rows
from ..state.podclass import PodClass
from ..volumes import zone
from ..volumes.claims import Refused
from ..volumes.hints import volumes_of, zone_events

State = tuple[zone.Topology, ...]


class VolumeZone(Filter):
    name = zone.NAME
    depends = Depends.NODE
    reads_requests = False

    def prepare(self, pod: PodClass, handle: Handle) -> State | None:
        if pod.volumes is None:
            return None
        found = zone.plan(pod.volumes, handle.catalogue)
        if isinstance(found, Refused):
            raise PodRejected(found.message)
        return found

    def feasible(self, state: State, nodes: Columns, rows: Rows) -> Bools:
        return zone.feasible(state, nodes, rows)

    def reasons(self, state: State, nodes: Columns, rows: Rows) -> Mapping[str, int]:
        return zone.reasons(state, nodes, rows)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return zone_events(volumes_of)
