"""All that a session says, each kind within a budget of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from agent_scheduler.binding.calls import RateLimit
from agent_scheduler.binding.messenger import KubeMessenger
from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.cluster.groups import Groups
from agent_scheduler.engine.session.close import Result
from agent_scheduler.kube.budget import Budget
from agent_scheduler.kube.recorder import EventRecorder
from agent_scheduler.kube.retry import Timing
from agent_scheduler.kube.status import StatusWriter
from agent_scheduler.kube.transport import Transport

from .committing import BatchObserver
from .settings import BatchSettings
from .writing import GroupStatuses, ObjectWrites, tell


class Writer(Protocol):
    """Is to be run, and drained at the end."""

    def run(self) -> Coroutine[Any, Any, None]: ...
    def drain(self, timeout: float) -> Awaitable[int]: ...


class BatchMessages:
    """Owner of the writers and their budgets."""

    def __init__(
        self,
        settings: BatchSettings,
        groups: Groups,
        *,
        transport: Transport,
        observer: BatchObserver,
        timing: Timing,
        try_again: Callable[[], None],
    ) -> None:
        limit = settings.status_writes
        self._groups = groups
        self._name = settings.scheduler_name
        status = StatusWriter(
            transport,
            budget=_budget(limit, timing),
            concurrency=limit.concurrency,
            timing=timing,
            now=timing.now,
            count=observer.status_write,
        )
        self._recorder: EventRecorder | None = None
        if settings.events is not None:
            self._recorder = EventRecorder(
                transport,
                controller=settings.scheduler_name,
                instance=settings.identity,
                budget=_budget(settings.events, timing),
                concurrency=settings.events.concurrency,
                capacity=settings.event_buffer,
                timing=timing,
                count=observer.event_write,
            )
        self.messenger = KubeMessenger(status=status, recorder=self._recorder)
        self.statuses = GroupStatuses(
            transport,
            groups,
            budget=_budget(limit, timing),
            timing=timing,
            count=observer.status_write,
            try_again=try_again,
        )
        self._objects = ObjectWrites(
            transport,
            queues=_budget(limit, timing),
            gates=_budget(limit, timing),
            timing=timing,
            count=observer.status_write,
        )
        #: In the order in which they are drained.
        self.writers: tuple[Writer, ...] = (
            self.statuses.writes,
            status,
            self._objects.gates,
            self._objects.queues,
            *(() if self._recorder is None else (self._recorder,)),
        )

    def tell(self, result: Result, cluster: Cluster) -> None:
        """What a session came to. Of pods that no longer wait nothing is said."""
        for group in result.groups:
            if group.write:
                self.statuses.put(group)
        for queue in result.queues:
            if queue.write:
                self._objects.queues.put(queue.queue.name, queue)
        for pod in result.ungated:
            self._objects.gates.put(pod.uid, pod)
        for each in result.pods:
            if cluster.waits(each.pod.uid) and each.pod.uid not in cluster.ledger.placements:
                if each.nominated:
                    # Kept where the fast path looks, so that it leaves the room alone.
                    cluster.queue.nominate(each.pod, each.nominated)
                self.messenger.refused(each.pod, each.reason, each.message, nominated=each.nominated or None)
        if self._recorder is not None:
            for event in result.events:
                tell(self._recorder, self._groups, event, controller=self._name)


def _budget(limit: RateLimit, timing: Timing) -> Budget:
    """For calls of a dispatcher, which makes no more than `limit.concurrency` of them at a time."""
    return Budget(qps=limit.qps or None, burst=limit.burst, timing=timing)
