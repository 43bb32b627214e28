"""A decision on its way to the binder, who is told what becomes of it, and what the binder reports of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from agent_scheduler.cluster.cluster import Entry
from agent_scheduler.engine.decide.compiled import CompiledFilter
from agent_scheduler.engine.decide.decide import CandidateNodes
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.quotas.shortfall import Shortfall
from agent_scheduler.engine.state.podclass import PodClass
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.kube.bind import BindOutcome


class Attempts(Protocol):
    """Who has the pods that are tried. As the queue's methods of these names."""

    def scheduled(self, entry: Entry) -> None: ...
    def done(self, uid: str) -> None: ...


class Failures(Protocol):
    """Who goes on with pods that are not bound. As the `FailureHandler`'s methods of these names."""

    def unschedulable(self, entry: Entry, pod: PodInfo, refusal: Refusal, *, started: float) -> object: ...

    def error(
        self, entry: Entry, pod: PodInfo, message: str, *, started: float, tell: bool = True
    ) -> object: ...

    def queue_full(self, entry: Entry, pod: PodInfo, short: Shortfall, *, started: float) -> object: ...
    def outraced(self, entry: Entry, pod: PodInfo, *, started: float) -> object: ...
    def outdated(self, entry: Entry) -> object: ...

    def overcome(self, pod: PodInfo, node_name: str, *, started: float) -> object:
        """It is bound, not at the first attempt."""


class Owner(NamedTuple):
    """Who has decided on a pod, and is told once what became of that: bound (`attempts`), to be tried again
    (`failures`), or neither, as the pod no longer waits (`attempts.done`)."""

    attempts: Attempts
    failures: Failures


class ScheduleResult(NamedTuple):
    """What a worker hands over: a popped pod and its candidates, best first; or a member of a group, with its node."""

    entry: Entry
    pod: PodInfo
    #: What it was decided as.
    cls: PodClass
    placement: CandidateNodes
    filters: Sequence[CompiledFilter]
    #: The clock when the attempt began.
    started: float
    owner: Owner
    #: The version of the storage that it was decided on.
    catalogue_version: int = -1
    #: As `ClassView.reserves`.
    reserves: bool = False
    #: Whether it is bound with others of its group, behind pods of the fast path.
    in_group: bool = False


class BinderObserver(Protocol):
    """Is told what the binder did. Durations in seconds."""

    def judged(self, conflicts: int, revalidated: int, outdated: int, accepted: bool) -> None:
        """A result was judged: candidates passed over, live re-checks passed and failed."""

    def bound(self, outcome: BindOutcome, seconds: float, pod: PodInfo, node_name: str) -> None:
        """A bind ended."""

    def pod_scheduled(self, pod: PodInfo, node_name: str, started: float) -> None:
        """An attempt that began at clock `started` ended with the pod bound to a node."""

    def bind_failed(self, pod: PodInfo, node_name: str, problem: str) -> None:
        """A bind came to nothing; the pod is requeued."""
