"""A decision on its way to the binder, and what the binder reports of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from agent_scheduler.cluster.cluster import Entry
from agent_scheduler.engine.decide.compiled import CompiledFilter
from agent_scheduler.engine.decide.decide import CandidateNodes
from agent_scheduler.engine.state.podclass import PodClass
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.kube.bind import BindOutcome


class ScheduleResult(NamedTuple):
    """What a worker hands over: a popped pod and its candidates, best first."""

    entry: Entry
    pod: PodInfo
    #: What it was decided as.
    cls: PodClass
    placement: CandidateNodes
    filters: Sequence[CompiledFilter]
    #: The worker's clock when the attempt began.
    started: float
    #: The version of the storage that it was decided on.
    catalogue_version: int = -1
    #: As `ClassView.reserves`.
    reserves: bool = False


class BinderObserver(Protocol):
    """Is told what the binder did. Durations in seconds."""

    def judged(self, conflicts: int, revalidated: int, outdated: int, accepted: bool) -> None:
        """A result was judged: candidates passed over, live re-checks passed and failed."""

    def bound(self, outcome: BindOutcome, seconds: float, profile: str) -> None:
        """A bind ended."""

    def attempted(self, profile: str, result: str, started: float) -> None:
        """An attempt ended: `scheduled`, `unschedulable` or `error`."""

    def pod_scheduled(self, pod: PodInfo, node_name: str, started: float) -> None:
        """An attempt that began at clock `started` ended with the pod bound to a node."""

    def bind_failed(self, pod: PodInfo, node_name: str, problem: str) -> None:
        """A bind came to nothing; the pod is requeued."""
