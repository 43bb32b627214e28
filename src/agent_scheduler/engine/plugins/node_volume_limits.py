"""NodeVolumeLimits: no more volumes on a node than its drivers can attach. The rule is in `volumes.limits`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..columns import Bools, Columns, Rows
from ..framework import Depends, Filter
from ..handle import Handle
from ..podclass import PodClass
from ..queueing.hints import ClusterEventWithHint
from ..volumes import limits
from ..volumes.catalogue import Catalogue
from ..volumes.claims import Refused
from ..volumes.hints import limit_events, volumes_of
from ..volumes.usage import VolumeUse


class State(NamedTuple):
    plan: frozenset[limits.Handle] | Refused
    catalogue: Catalogue
    use: VolumeUse


class NodeVolumeLimits(Filter):
    name = limits.NAME
    depends = Depends.USAGE

    def prepare(self, pod: PodClass, handle: Handle) -> State | None:
        if pod.volumes is None:
            return None
        catalogue = handle.catalogue
        found = limits.plan(pod.volumes, catalogue)
        return None if found is None else State(found, catalogue, handle.volume_use)

    def feasible(self, state: State, nodes: Columns, rows: Rows) -> Bools:
        return limits.feasible(state.plan, state.catalogue, state.use, nodes, rows, without=nodes.absent)

    def reasons(self, state: State, nodes: Columns, rows: Rows) -> Mapping[str, int]:
        return limits.reasons(state.plan, nodes, rows)

    def curable(self, state: State, nodes: Columns, rows: Rows) -> Bools:
        return np.full(rows.shape[0], not isinstance(state.plan, Refused))

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return limit_events(volumes_of)
