"""Writes the results of sessions to the API server, each kind of write within its own budget."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Generator, Mapping
from typing import Any, Protocol

from agent_scheduler.binding.messages import Messages, MessageSettings, budget_of
from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.gangs.native import PREEMPTING, NativeGroup
from agent_scheduler.engine.gangs.native import UNSCHEDULABLE as NOT_SCHEDULED
from agent_scheduler.engine.queues.usage import QueueUsage
from agent_scheduler.engine.session.close import SessionResult
from agent_scheduler.engine.session.messages import GROUP_READY
from agent_scheduler.engine.session.results import GroupResult
from agent_scheduler.engine.session.session import GroupEvent
from agent_scheduler.engine.session.settled import STRIDE
from agent_scheduler.engine.verdicts import SCHEDULING_GATED, WaitReason
from agent_scheduler.telemetry.batch import BatchReports
from kube_client.pace import Pace
from kube_client.retry import Timing
from kube_client.transport import Transport

from .settings import BatchSettings
from .waiting import BatchWaitingPods
from .writing import GroupStatuses, QueueStatuses, tell


class BackgroundWriter(Protocol):
    """Writes in a task that calls `run`; `drain` is called at the end."""

    def run(self) -> Coroutine[Any, Any, None]: ...
    def drain(self, timeout: float) -> Awaitable[int]: ...


class BatchMessages:
    """Owner of the batch scheduler's writers and of their budgets."""

    def __init__(
        self,
        settings: BatchSettings,
        waiting: BatchWaitingPods,
        usage: QueueUsage,
        *,
        transport: Transport,
        observer: BatchReports,
        timing: Timing,
        pace: Pace,
    ) -> None:
        """Create the writers for the groups of `waiting`, for which another session is due after a failed write."""
        groups, try_again = waiting.groups, waiting.due.set
        limit = settings.status_writes
        self._groups = groups
        self._name = settings.scheduler_name
        self._member_events = settings.member_events
        said = Messages(
            MessageSettings(
                name=settings.scheduler_name,
                identity=settings.identity,
                status_writes=limit,
                events=settings.events,
                event_buffer=settings.event_buffer,
            ),
            transport=transport,
            observer=observer,
            timing=timing,
            pace=pace,
        )
        self.messenger, self._recorder = said.messenger, said.recorder
        self._said = said
        self.statuses = GroupStatuses(
            transport,
            groups,
            budget=budget_of(limit, timing),
            timing=timing,
            count=observer.status_write,
            try_again=try_again,
            pace=pace,
        )
        self.queues = QueueStatuses(
            transport,
            groups,
            usage,
            budget=budget_of(limit, timing),
            timing=timing,
            count=observer.status_write,
            pace=pace,
        )
        #: The writers, in the order in which to drain them.
        self.writers: tuple[BackgroundWriter, ...] = (self.statuses.writes, self.queues, *said.writers)

    def set_rates(self, settings: BatchSettings) -> None:
        """Set the rates of conditions and events from now on."""
        self._said.set_rates(settings.status_writes, settings.events)

    def _tell_of_native(self, group: NativeGroup, result: GroupResult) -> None:
        """Write the condition of a Kubernetes PodGroup.

        A group that lacks members, or whose members have gates, gets no first condition, as from kube-scheduler, which
        does not try such a group.
        """
        verdict = result.verdict
        if not result.tasks:
            # Another scheduler may have its pods.
            return
        if verdict is None:
            self.messenger.group_decided(group, "True", "Scheduled", "")
        elif verdict.wants_nodes:
            message = PREEMPTING if result.preempts else NOT_SCHEDULED
            self.messenger.group_decided(group, "False", verdict.reason, message)
        elif verdict.wait not in (WaitReason.MEMBERS, WaitReason.GATES) or group.condition is not None:
            self.messenger.group_decided(group, "False", verdict.reason, verdict.message)

    def tell(
        self, result: SessionResult, cluster: Cluster, *, claims: Mapping[str, str]
    ) -> Generator[None, None, None]:
        """Write the results of a session, in steps of one object; skip pods that no longer wait.

        `claims` maps the UID of a pod to the node on which capacity is about to be free for it.
        """
        deferred = list(self.statuses.deferred)
        for number, group in enumerate(result.groups):
            if group.write:
                self.statuses.put(group)
            if group.write or not number % STRIDE:
                yield
            key = group.group.key
            # A group whose members all belong to another scheduler is reported by that scheduler.
            ours = key.native and (group.tasks or not cluster.groups.members(key))
            if ours and (found := cluster.groups.get(key)) is not None:
                self._tell_of_native(found, group)
                yield
        # Those that this session has not replaced.
        self.statuses.write_deferred(deferred)
        self.queues.put(result.queues)
        for each in result.pods:
            uid = each.pod.uid
            if cluster.waits(uid) and uid not in cluster.ledger.placements:
                # The status names a node only if pods were evicted from it, and the claim is still valid.
                node = claims.get(uid, "") if each.nominated or each.pod.nominated_node_name else None
                if each.reason == SCHEDULING_GATED:
                    self.messenger.gated(each.pod, each.message, nominated=node)
                else:
                    self.messenger.refused(each.pod, each.reason, each.message, nominated=node)
                yield
        for number, pod in enumerate(result.confirmed):
            if cluster.waits(pod.uid) and pod.uid not in cluster.ledger.placements:
                self.messenger.confirmed(pod)
            if not number % STRIDE:
                yield
        for event in result.events:
            # Without events of members, the event of their binds tells that the group is ready.
            if self._member_events or event.message != GROUP_READY:
                self.tell_of_group(event)
                yield

    def tell_of_group(self, event: GroupEvent) -> None:
        """Record an event about a group, if events are written and the group has a PodGroup of Volcano."""
        if self._recorder is not None:
            tell(self._recorder, self._groups, event, controller=self._name)
