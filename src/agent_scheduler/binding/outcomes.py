"""Handles results that are not simply bound.

docs/bind-outcomes.md has the table of outcomes of binds that were not confirmed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from agent_scheduler.cluster.cluster import Cluster
from kube_client.bind import BindOutcome, BindResult

from .prebind import Ended, PreBinder
from .result import ScheduleResult

#: Outcomes that the watch is about to explain. If it does not, the pod is retried.
TOLD_BY_THE_WATCH: Final = frozenset(
    (BindOutcome.BOUND_ELSEWHERE, BindOutcome.RECREATED, BindOutcome.DELETING, BindOutcome.GATED, BindOutcome.GONE)
)


class OtherOutcomes:
    """Handles the outcomes that are not a simple bind; stateless."""

    def __init__(
        self,
        cluster: Cluster,
        prebind: PreBinder,
        *,
        scheduled: Callable[[ScheduleResult, str], None],
        tried_again: Ended,
    ) -> None:
        """Handle outcomes; `scheduled` is called for bound pods, `tried_again` with the reason for other pods."""
        self._cluster = cluster
        self._prebind = prebind
        self._scheduled = scheduled
        self._tried_again = tried_again

    def stands(self, result: ScheduleResult) -> bool:
        """Return whether the pod still waits and has the class of the decision; if not, it is requeued or dropped."""
        entry, pod, cluster = result.entry, result.pod, self._cluster
        seen = cluster.pods.get(pod.uid)
        if seen is None or not cluster.is_ours(seen):
            result.owner.attempts.done(pod.uid)
            return False
        if seen.cls is not pod.cls or cluster.handle.class_of(pod) is not result.cls:
            # Its requirements changed (a resize, a toleration), or a pod that was placed meanwhile affects its class.
            result.owner.failures.outdated(entry)
            return False
        return True

    def fits_its_queue(self, result: ScheduleResult) -> bool:
        """Return whether the pod's queue can still hold it; if not, the pod waits for its queue."""
        short = self._cluster.ledger.usage.full(result.pod)
        if short is not None:
            result.owner.failures.queue_full(result.entry, result.pod, short, started=result.started)
        return short is None

    def settle(self, result: ScheduleResult, node_name: str, answer: BindResult) -> bool:
        """Act on the outcome. Returns whether the writes for the pod are or will be undone."""
        pod, owner, prebind = result.pod, result.owner, self._prebind
        seen = self._cluster.pods.get(pod.uid)
        # UNKNOWN means that the watch has settled it: the pod is bound or gone, and the ledger is up to date.
        unknown = answer.outcome is BindOutcome.UNKNOWN
        is_bound = unknown and seen is not None and seen.node_name == node_name
        if result.reserves:
            (prebind.bound if is_bound else prebind.give_back)(pod)
        if is_bound:
            self._scheduled(result, node_name)
            return False
        if unknown:
            owner.attempts.done(pod.uid)
            return False
        self._cluster.forget(pod)
        if answer.outcome in TOLD_BY_THE_WATCH:
            problem = f"the API server reports that the pod is {answer.outcome.value}"
            owner.failures.error(result.entry, pod, problem, started=result.started, tell=False)
            return False
        problem = f"binding rejected: {answer.failure}" if answer.failure else "binding rejected"
        if not prebind.failed(result, node_name, problem, self._tried_again):
            self._tried_again(result, node_name, problem)
        return True
