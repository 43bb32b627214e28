"""What becomes of results that are not simply bound. Of binds that were not answered as carried out
docs/bind-outcomes.md has the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.kube.bind import BindOutcome, BindResult

from .prebind import PreBinder
from .result import ScheduleResult

#: Where the pod belongs now the watch is about to say. Should that say nothing, it is tried again.
TOLD_BY_THE_WATCH: Final = frozenset(
    (
        BindOutcome.BOUND_ELSEWHERE,
        BindOutcome.RECREATED,
        BindOutcome.DELETING,
        BindOutcome.GATED,
        BindOutcome.GONE,
    )
)


class OtherOutcomes:
    """Holds nothing of its own."""

    def __init__(
        self,
        cluster: Cluster,
        prebind: PreBinder | None,
        *,
        scheduled: Callable[[ScheduleResult, str], None],
        tried_again: Callable[[ScheduleResult, str, str], None],
    ) -> None:
        """`scheduled` is told of a pod that turns out to be bound, `tried_again` of one that is not, and why."""
        self._cluster = cluster
        self._prebind = prebind
        self._scheduled = scheduled
        self._tried_again = tried_again

    def stands(self, result: ScheduleResult) -> bool:
        """Whether the pod still waits and is of the class that was decided on. Else it is requeued, or dropped."""
        entry, pod, cluster = result.entry, result.pod, self._cluster
        seen = cluster.pods.get(pod.uid)
        if seen is None or not cluster.is_ours(seen):
            result.owner.attempts.done(pod.uid)
            return False
        if seen.cls is not pod.cls or cluster.handle.class_of(pod) is not result.cls:
            # It wants something else by now (a resize, a toleration), or a pod was placed that has something to say
            # about it: the decision was about another class.
            result.owner.failures.outdated(entry)
            return False
        return True

    def fits_its_queue(self, result: ScheduleResult) -> bool:
        """Whether the pod's queue can still hold it. Else it waits for that."""
        short = self._cluster.ledger.usage.full(result.pod)
        if short is not None:
            result.owner.failures.queue_full(result.entry, result.pod, short, started=result.started)
        return short is None

    def settle(self, result: ScheduleResult, node_name: str, answer: BindResult) -> bool:
        """Whether what was written for the pod is taken back, or will be; else it stays as it is."""
        pod, owner, prebind = result.pod, result.owner, self._prebind
        seen = self._cluster.pods.get(pod.uid)
        # After UNKNOWN the watch has told meanwhile: the pod is bound or gone, and the ledger knows.
        unknown = answer.outcome is BindOutcome.UNKNOWN
        is_bound = unknown and seen is not None and seen.node_name == node_name
        if prebind is not None and result.reserves:
            (prebind.bound if is_bound else prebind.give_back)(pod)
        if is_bound:
            self._scheduled(result, node_name)
            return False
        if unknown:
            owner.attempts.done(pod.uid)
            return False
        self._cluster.forget(pod)
        if answer.outcome in TOLD_BY_THE_WATCH:
            problem = f"the API server says that the pod is {answer.outcome.value}"
            owner.failures.error(result.entry, pod, problem, started=result.started, tell=False)
            return False
        problem = f"binding rejected: {answer.failure}" if answer.failure else "binding rejected"
        if prebind is None or not prebind.failed(result, node_name, problem):
            self._tried_again(result, node_name, problem)
        return True
