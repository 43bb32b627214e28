"""A decision on its way to the binder, and the callbacks for its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from agent_scheduler.cluster.cluster import Entry
from agent_scheduler.engine.decide.compiled import CompiledFilter
from agent_scheduler.engine.decide.decide import CandidateNodes
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.queues.shortfall import Shortfall
from agent_scheduler.engine.state.podclass import PodClass
from agent_scheduler.engine.state.podinfo import PodInfo


class AttemptCallbacks(Protocol):
    """Callbacks for attempts; see the queue's methods of these names."""

    def scheduled(self, entry: Entry) -> None: ...
    def done(self, uid: str) -> None: ...


class Failures(Protocol):
    """Callbacks for failed attempts; see `FailureHandler`."""

    def unschedulable(self, entry: Entry, pod: PodInfo, refusal: Refusal, *, started: float) -> object: ...

    def error(self, entry: Entry, pod: PodInfo, message: str, *, started: float, tell: bool = True) -> object: ...

    def broken(self, entry: Entry, pod: PodInfo, message: str, *, started: float) -> object: ...
    def queue_full(self, entry: Entry, pod: PodInfo, short: Shortfall, *, started: float) -> object: ...
    def outraced(self, entry: Entry, pod: PodInfo, *, started: float) -> object: ...
    def outdated(self, entry: Entry) -> object: ...

    def overcome(self, pod: PodInfo, node_name: str, *, started: float) -> object:
        """Record that the pod was bound after failed attempts."""


class AttemptOwner(NamedTuple):
    """The callbacks of the component that decided on a pod, which are called once with the outcome.

    The pod is bound (`attempts`), retried (`failures`), or dropped because it no longer waits (`attempts.done`).
    """

    attempts: AttemptCallbacks
    failures: Failures


class ScheduleResult(NamedTuple):
    """A worker's result: a popped pod and its candidates, best first; or a member of a group, with its node."""

    entry: Entry
    pod: PodInfo
    #: The class of the pod for which it was decided.
    cls: PodClass
    placement: CandidateNodes
    filters: Sequence[CompiledFilter]
    #: The clock when the attempt began.
    started: float
    owner: AttemptOwner
    #: The version of the storage on which the decision depends.
    catalogue_version: int = -1
    #: See `ClassView.reserves`.
    reserves: bool = False
    #: Whether it is bound with others of its group, behind pods of the fast path.
    in_group: bool = False
    #: The worker or session that decided, for users.
    by: str = ""
    #: Whether its owner reports the bind, so that the pod gets no event `Scheduled`.
    is_reported: bool = False
