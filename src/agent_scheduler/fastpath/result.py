"""A decision on its way to the binder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agent_scheduler.engine.compiled import CompiledFilter
from agent_scheduler.engine.decide import Placement
from agent_scheduler.engine.podclass import PodClass
from agent_scheduler.engine.podinfo import PodInfo

from .cluster import Entry


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
