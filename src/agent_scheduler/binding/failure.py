"""What becomes of a pod that got no node: it is queued for another try, and people are told why.

Reasons are kube-scheduler's: `Unschedulable` when filters refused every node, `SchedulerError` for all else; and
`NodeShardNotReady` where no node was asked, which autoscalers do not take for a want of nodes. The condition is
written only if it says something new; status writes and events have budgets of their own, so that ten thousand refused
pods never delay a bind.
"""

from __future__ import annotations

from typing import Protocol

from agent_scheduler.cluster.cluster import Entry
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.framework.plugin import NO_NODES, POD_SPEC
from agent_scheduler.engine.plugins.node_shard import NAME as NODE_SHARD
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.state.podinfo import PodInfo

from .history import History

UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
#: Cluster autoscaler and Karpenter look for nodes to add where the reason is `Unschedulable`, and nowhere else.
NODE_SHARD_NOT_READY = "NodeShardNotReady"


class Messenger(Protocol):
    """Tells the API server. Returns at once; what cannot be told is counted, never raised."""

    def refused(self, pod: PodInfo, reason: str, message: str, *, nominated: str | None = None) -> None:
        """PodScheduled=False with `reason` (if that is news), and a FailedScheduling event.

        `nominated`: the node that it waits for from now on, "" for none any more, None for as before.
        """

    def binding(self, pod: PodInfo) -> None:
        """A bind is about to be sent: what waits to be said about a refusal must not be said after it."""

    def scheduled(self, pod: PodInfo, node_name: str) -> None:
        """A Scheduled event."""


class AttemptObserver(Protocol):
    def attempted(self, profile: str, result: str, started: float) -> None:
        """An attempt ended: `scheduled`, `unschedulable` or `error`."""


class FailureHandler:
    """Requeues and reports. Holds nothing of its own.

    Nothing is said of a pod that no longer waits: it was bound or deleted while the attempt went on.
    """

    def __init__(
        self,
        *,
        queue: SchedulingQueue[PodInfo],
        messenger: Messenger,
        observer: AttemptObserver,
        history: History,
    ) -> None:
        self._queue = queue
        self._messenger = messenger
        self._observer = observer
        #: For the binder, too, which knows of the attempts that succeed.
        self.history = history

    def unschedulable(
        self,
        entry: Entry,
        pod: PodInfo,
        refusal: Refusal,
        *,
        started: float,
        nominated: str | None = None,
        again: bool = False,
    ) -> bool:
        """Every node was refused, or there is none. `nominated` as for `Messenger.refused`. `again`: the pod is tried
        again after a backoff, whatever happens.

        Returns whether the pod still waits.
        """
        plugins = () if again else refusal.plugins or {NO_NODES}
        place = self._queue.add_unschedulable(entry, unschedulable_plugins=plugins)
        self._observer.attempted(pod.scheduler_name, "unschedulable", started)
        if place is None:
            return False
        self.history.failed(pod.uid, "unschedulable", refusal.message, started=started)
        if nominated is not None:
            self._queue.nominate(pod, nominated)
        self._messenger.refused(pod, UNSCHEDULABLE, refusal.message, nominated=nominated)
        return True

    def without_shard(self, entry: Entry, pod: PodInfo, why: str, *, nodes: int, started: float) -> None:
        """There is no shard that the pod could go to. It is tried again when there is."""
        place = self._queue.add_unschedulable(entry, unschedulable_plugins={NODE_SHARD})
        self._observer.attempted(pod.scheduler_name, "unschedulable", started)
        if place is not None:
            message = f"0/{nodes} nodes are available: {why}."
            self.history.failed(pod.uid, "unschedulable", message, started=started)
            self._messenger.refused(pod, NODE_SHARD_NOT_READY, message)

    def unreadable(self, entry: Entry, pod: PodInfo, *, started: float) -> None:
        """The spec says something that has no meaning; trying again cannot help until the pod changes."""
        place = self._queue.add_unschedulable(entry, unschedulable_plugins={POD_SPEC})
        self._observer.attempted(pod.scheduler_name, "error", started)
        if place is not None:
            self.history.failed(pod.uid, "error", pod.cls.error, started=started)
            self._messenger.refused(pod, SCHEDULER_ERROR, pod.cls.error)

    def error(self, entry: Entry, pod: PodInfo, message: str, *, started: float, tell: bool = True) -> None:
        """The attempt failed for a reason that lies outside the pod; it is tried again after a backoff."""
        place = self._queue.add_unschedulable(entry)
        self._observer.attempted(pod.scheduler_name, "error", started)
        if place is None:
            return
        self.history.failed(pod.uid, "error", message, started=started)
        if tell:
            self._messenger.refused(pod, SCHEDULER_ERROR, message)

    def outraced(self, entry: Entry, pod: PodInfo, *, started: float) -> None:
        """Other pods took the nodes that it was to go to. It is tried again before all others."""
        self.history.outraced(pod.uid, started=started)
        self._queue.requeue_urgent(entry)

    def outdated(self, entry: Entry) -> None:
        """It wants something else than what was decided on. It is tried again before all others."""
        self._queue.requeue_urgent(entry)
