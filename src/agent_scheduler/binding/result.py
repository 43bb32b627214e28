"""A decision on its way to the binder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agent_scheduler.cluster.cluster import Entry
from agent_scheduler.engine.decide.compiled import CompiledFilter
from agent_scheduler.engine.decide.decide import Placement
from agent_scheduler.engine.state.podclass import PodClass
from agent_scheduler.engine.state.podinfo import PodInfo


class ScheduleResult(NamedTuple):
    """What a worker hands over: a popped pod and its candidates, best first."""

    entry: Entry
    pod: PodInfo
    #: What it was decided as.
    cls: PodClass
    placement: Placement
    filters: Sequence[CompiledFilter]
    #: The worker's clock when the attempt began.
    started: float
    #: The version of the storage that it was decided on.
    catalogue_version: int = -1
    #: As `ClassView.reserves`.
    reserves: bool = False
