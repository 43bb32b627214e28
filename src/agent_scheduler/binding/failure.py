"""Failed attempts: the pod is queued for another one, and its condition and an event say why.

Reasons are kube-scheduler's: `Unschedulable` when filters refused every node, `SchedulerError` for what failed; and,
where no node is missing and no autoscaler is to add one, those of `engine.verdicts`. The condition is written only if
it says something new; status writes and events have budgets of their own, so that ten thousand refused pods never delay
a bind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from agent_scheduler.cluster.cluster import Entry
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.framework.plugin import GANG_SCHEDULING, NO_NODES, POD_SPEC
from agent_scheduler.engine.plugins.node_shard import NAME as NODE_SHARD
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.quotas.shortfall import Shortfall
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.queueusage import QueueUsage
from agent_scheduler.engine.state.wantingpods import Together
from agent_scheduler.engine.verdicts import Verdict, Wait, by_nodes, by_queue

from .history import History
from .queue_gate import NAME as QUEUE_CAPACITY

SCHEDULER_ERROR = "SchedulerError"


class Messenger(Protocol):
    """Tells the API server. Returns at once; what cannot be sent is counted, never raised."""

    def refused(self, pod: PodInfo, reason: str, message: str, *, nominated: str | None = None) -> None:
        """PodScheduled=False with `reason` (if that is news), and a FailedScheduling event.

        `nominated`: the node that it waits for from now on, "" for none any more, None for as before.
        """

    def gated(self, pod: PodInfo, message: str, *, nominated: str | None = None) -> None:
        """PodScheduled=False for its gates, if that is news. `nominated` as for `refused`."""

    def binding(self, pod: PodInfo) -> None:
        """A bind is about to be sent: what waits to be said about a refusal must not be said after it."""

    def scheduled(self, pod: PodInfo, node_name: str) -> None:
        """A Scheduled event."""


class AttemptObserver(Protocol):
    def attempted(
        self, pod: PodInfo, result: str, started: float, plugins: Collection[str], message: str
    ) -> None:
        """An attempt ended without a bind: `unschedulable`, by `plugins`, or `error`; `message` says why."""

    def outraced(self, pod: PodInfo, started: float) -> None:
        """An attempt ended because other pods took the nodes that it was to go to."""


class Outside(Protocol):
    """Nodes that are not in the scheduler's shard, where it may use no others."""

    def full(self, pods: Sequence[PodInfo]) -> str:
        """For people, why pods for which the shard has no room, all of them together, need no more nodes; empty if they
        do."""


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
        usage: QueueUsage,
        outside: Outside | None = None,
    ) -> None:
        """`outside`: None where all nodes may be used."""
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
        together: Together | None = None,
    ) -> bool:
        """Every node was refused, or there is none. `nominated` as for `Messenger.refused`. `again`: the pod is tried
        again after a backoff, whatever happens. `shard_full`: as `shard_full` says of it and those that it is placed
        with; None: it is alone. `together`: with whom it wants a node.

        Others may have taken what was left in its queue meanwhile, or do so now that it needs it no more: then that is
        what it waits for, and not for nodes.

        Returns whether the pod still waits for a node.
        """
        if self._usage.active:
            self._usage.unplaced(pod.uid)
            short = self._usage.full(pod)
            if short is not None:
                self.queue_full(entry, pod, short, started=started)
                return False
        plugins = () if again else refusal.plugins or {NO_NODES}
        verdict = by_nodes(refusal.message, refusal.plugins)
        given_back = self._usage.gated.given_back.get(pod.uid)
        if given_back is not None:
            verdict = Verdict(Wait.QUEUE, f"{given_back}; {refusal.message}")
        elif why := self.shard_full((pod,)) if shard_full is None else shard_full:
            verdict = Verdict(Wait.SHARD_FULL, f"{refusal.message} {why}.")
        waits = self._waits(entry, pod, verdict, plugins=plugins, started=started, nominated=nominated)
        if waits and self._usage.active:
            kept = pod.uid in self._queue.nominator.nominated if nominated is None else bool(nominated)
            self._usage.wants_node(pod, nominated=kept, together=together)
        return waits

    def lacks_others(self, entry: Entry, pod: PodInfo, verdict: Verdict, *, started: float) -> None:
        """Its gang has not the members that it needs, and a node would be of no use to it. A member that comes, or
        whose gates go, is tried, and takes it along."""
        had_one = pod.uid in self._queue.nominator.nominated or pod.nominated_node_name
        nominated = "" if had_one else None
        self._waits(entry, pod, verdict, plugins={GANG_SCHEDULING}, started=started, nominated=nominated)

    def shard_full(self, pods: Sequence[PodInfo]) -> str:
        """As `Outside.full`; empty where all nodes may be used."""
        return self._outside.full(pods) if self._outside is not None and pods else ""

    def without_shard(self, entry: Entry, pod: PodInfo, why: str, *, nodes: int, started: float) -> None:
        """There is no shard that the pod could go to. It is tried again when there is."""
        message = f"0/{nodes} nodes are available: {why}."
        self._waits(entry, pod, Verdict(Wait.SHARD, message), plugins={NODE_SHARD}, started=started)

    def queue_full(self, entry: Entry, pod: PodInfo, short: Shortfall, *, started: float) -> None:
        """The pod's queue cannot hold it. It is tried again when more fits into that, and no node's room is kept for it
        until then: nobody knows how long that is."""
        had_one = pod.uid in self._queue.nominator.nominated or pod.nominated_node_name
        plugins, nominated = {QUEUE_CAPACITY}, "" if had_one else None
        self._waits(entry, pod, by_queue(short), plugins=plugins, started=started, nominated=nominated)

    def unreadable(self, entry: Entry, pod: PodInfo, *, started: float) -> None:
        """The spec says something that has no meaning; trying again cannot help until the pod changes."""
        self._failed(entry, pod, SCHEDULER_ERROR, pod.cls.error, plugins={POD_SPEC}, started=started)

    def error(self, entry: Entry, pod: PodInfo, message: str, *, started: float, tell: bool = True) -> None:
        """The attempt failed for a reason that lies outside the pod; it is tried again after a backoff."""
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
        """`plugins`: those whose events wake the pod. `label`: of the verdict. Returns whether it still waits."""
        place = self._queue.add_unschedulable(entry, unschedulable_plugins=plugins)
        self._usage.wanting.drop(pod.uid)
        if self._usage.active and QUEUE_CAPACITY not in plugins:
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
        """It was not tried, as the same would have come of it. Events of `plugins` wake it, or, without any, the end of
        a backoff."""
        self._queue.add_unschedulable(entry, unschedulable_plugins=plugins)

    def outraced(self, entry: Entry, pod: PodInfo, *, started: float) -> None:
        """Other pods took the nodes that it was to go to. It is tried again before all others."""
        self._observer.outraced(pod, started)
        self.history.outraced(pod.uid, started=started)
        self._queue.requeue_urgent(entry)

    def overcome(self, pod: PodInfo, node_name: str, *, started: float) -> None:
        """After failed attempts it is bound."""
        self.history.scheduled(pod.uid, node_name, started=started)

    def outdated(self, entry: Entry) -> None:
        """It wants something else than what was decided on. It is tried again before all others."""
        self._queue.requeue_urgent(entry)
