"""Handles failed attempts: requeues the pod, and reports the cause in its condition and an event.

The reasons are kube-scheduler's: `Unschedulable` if filters refused every node, `SchedulerError` for errors; and those
of `engine.verdicts` if more nodes would not help, so that autoscalers add none. The condition is written only if it
differs. Status writes and events have their own budgets, so ten thousand refused pods never delay a bind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from agent_scheduler.cluster.cluster import Entry
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.framework.plugin import GANG_SCHEDULING, NO_NODES, POD_SPEC
from agent_scheduler.engine.plugins.node_shard import NAME as NODE_SHARD
from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.queues.shortfall import Shortfall
from agent_scheduler.engine.queues.usage import QueueUsage
from agent_scheduler.engine.queues.wanting import WantingGang
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.verdicts import Verdict, WaitReason, by_nodes, by_queue
from agent_scheduler.telemetry.observers import MetricsObserver

from .history import History
from .messenger import KubeMessenger
from .queue_gate import NAME as QUEUE_CAPACITY

SCHEDULER_ERROR = "SchedulerError"


class Outside(Protocol):
    """The nodes outside the scheduler's shard, if it may use only its shard."""

    def full(self, pods: Sequence[PodInfo]) -> str:
        """Return a message for users why pods that do not fit into the shard need no more nodes; "" if they do."""


class FailureHandler:
    """Requeues and reports failed attempts; stateless.

    Pods that no longer wait, because they were bound or deleted during the attempt, are not reported.
    """

    def __init__(
        self,
        *,
        queue: SchedulingQueue,
        messenger: KubeMessenger,
        observer: MetricsObserver,
        history: History,
        usage: QueueUsage,
        outside: Outside | None,
    ) -> None:
        """Create the handler; `outside` is None if all nodes may be used."""
        self._queue = queue
        self._outside = outside
        self._messenger = messenger
        self._observer = observer
        self._usage = usage
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
        shard_full: str | None = None,
        together: WantingGang | None = None,
    ) -> bool:
        """Requeue a pod that every node refused, or for which there are no nodes. Returns whether it waits for a node.

        `nominated` is as for `KubeMessenger.refused`. If `again`, a backoff suffices for a retry, without an event.
        `shard_full` is the result of `shard_full` for the pod and those that are placed with it; None if it is alone.
        `together` are the pods with which it needs a node.

        If its queue has no room by now, the pod waits for its queue and not for nodes.
        """
        if self._usage.room.active:
            self._usage.unplaced(pod.uid)
            short = self._usage.full(pod)
            if short is not None:
                self.queue_full(entry, pod, short, started=started)
                return False
        plugins = () if again else refusal.plugins or {NO_NODES}
        verdict = by_nodes(refusal.message, refusal.plugins)
        given_back = self._usage.gated.given_back.get(pod.uid)
        if given_back is not None:
            verdict = Verdict(WaitReason.QUEUE, f"{given_back}; {refusal.message}")
        elif why := self.shard_full((pod,)) if shard_full is None else shard_full:
            verdict = Verdict(WaitReason.SHARD_FULL, f"{refusal.message} {why}.")
        waits = self._waits(entry, pod, verdict, plugins=plugins, started=started, nominated=nominated)
        if waits and self._usage.room.active:
            kept = pod.uid in self._queue.nominator.nominated if nominated is None else bool(nominated)
            self._usage.wants_node(pod, nominated=kept, together=together)
        return waits

    def lacks_others(self, entry: Entry, pod: PodInfo, verdict: Verdict, *, started: float) -> None:
        """Requeue a pod whose gang lacks members, so that a node would not help it.

        When a member is added or its gates are removed, it is tried together with this pod.
        """
        had_one = pod.uid in self._queue.nominator.nominated or pod.nominated_node_name
        nominated = "" if had_one else None
        self._waits(entry, pod, verdict, plugins={GANG_SCHEDULING}, started=started, nominated=nominated)

    def shard_full(self, pods: Sequence[PodInfo]) -> str:
        """Return `NodesOutsideShard.full` of the pods; "" if all nodes may be used."""
        return self._outside.full(pods) if self._outside is not None and pods else ""

    def without_shard(self, entry: Entry, pod: PodInfo, why: str, *, nodes: int, started: float) -> None:
        """Requeue a pod for which there is no shard. It is retried when there is one."""
        message = f"0/{nodes} nodes are available: {why}."
        self._waits(entry, pod, Verdict(WaitReason.SHARD, message), plugins={NODE_SHARD}, started=started)

    def queue_full(self, entry: Entry, pod: PodInfo, short: Shortfall, *, started: float) -> None:
        """Requeue a pod that its queue cannot hold. It is retried when the queue has room.

        No node is kept for it until then, since the time is unknown.
        """
        had_one = pod.uid in self._queue.nominator.nominated or pod.nominated_node_name
        plugins, nominated = {QUEUE_CAPACITY}, "" if had_one else None
        self._waits(entry, pod, by_queue(short), plugins=plugins, started=started, nominated=nominated)

    def unreadable(self, entry: Entry, pod: PodInfo, *, started: float) -> None:
        """Requeue a pod with an invalid spec; it is retried only when the spec changes."""
        self._failed(entry, pod, SCHEDULER_ERROR, pod.cls.error, plugins={POD_SPEC}, started=started)

    def set_aside(self, entry: Entry, pod: PodInfo, why: str, *, started: float) -> None:
        """Requeue a pod that must not be decided on; it is retried when its spec changes, or much later."""
        self._failed(entry, pod, SCHEDULER_ERROR, why, plugins={POD_SPEC}, started=started)

    def broken(self, entry: Entry, pod: PodInfo, message: str, *, started: float) -> None:
        """Requeue a pod after an error at any point of its attempt, also if the error came after it was requeued."""
        if self._queue.where(entry.uid) is not Place.IN_FLIGHT:
            return
        try:
            self.error(entry, pod, message, started=started)
        except Exception:
            # It cannot even be reported.
            if self._queue.where(entry.uid) is Place.IN_FLIGHT:
                self._queue.add_unschedulable(entry)

    def error(self, entry: Entry, pod: PodInfo, message: str, *, started: float, tell: bool = True) -> None:
        """Requeue a pod whose attempt failed for a reason outside the pod; it is retried after a backoff."""
        self._failed(entry, pod, SCHEDULER_ERROR, message, plugins=(), started=started, tell=tell)

    def _waits(
        self,
        entry: Entry,
        pod: PodInfo,
        verdict: Verdict,
        *,
        plugins: Collection[str],
        started: float,
        nominated: str | None = None,
    ) -> bool:
        return self._failed(
            *(entry, pod, verdict.reason, verdict.message),
            plugins=plugins,
            started=started,
            nominated=nominated,
            label=verdict.label,
        )

    def _failed(
        self,
        entry: Entry,
        pod: PodInfo,
        reason: str,
        message: str,
        *,
        plugins: Collection[str],
        started: float,
        nominated: str | None = None,
        tell: bool = True,
        label: str = "",
    ) -> bool:
        """Requeue the pod and report the attempt. Returns whether the pod still waits.

        Events of `plugins` wake it. `label` is the verdict's.
        """
        place = self._queue.add_unschedulable(entry, unschedulable_plugins=plugins)
        self._usage.wanting.drop(pod.uid)
        if self._usage.room.active and QUEUE_CAPACITY not in plugins:
            self._usage.unplaced(pod.uid)
        result = "error" if reason == SCHEDULER_ERROR else "unschedulable"
        self._observer.attempted(pod, result, started, plugins, message)
        if place is None:
            return False
        self.history.failed(pod.uid, result, message, started=started, waits_for=label)
        if nominated is not None:
            self._queue.nominate(pod, nominated)
        if tell:
            self._messenger.refused(pod, reason, message, nominated=nominated)
        return True

    def unchanged(self, entry: Entry, plugins: Iterable[str] = ()) -> None:
        """Requeue a pod that was not tried because the result would be the same.

        Events of `plugins` wake it; without any, the end of a backoff does.
        """
        self._queue.add_unschedulable(entry, unschedulable_plugins=plugins)

    def outraced(self, entry: Entry, pod: PodInfo, *, started: float) -> None:
        """Requeue the pod at the head of the queue, because other pods took its candidate nodes."""
        self._observer.outraced(pod, started)
        self.history.outraced(pod.uid, started=started)
        self._queue.requeue_urgent(entry)

    def overcome(self, pod: PodInfo, node_name: str, *, started: float) -> None:
        """Record that the pod was bound after failed attempts."""
        self.history.scheduled(pod.uid, node_name, started=started)

    def outdated(self, entry: Entry) -> None:
        """Requeue the pod at the head of the queue, because its requirements changed after the decision."""
        self._queue.requeue_urgent(entry)
