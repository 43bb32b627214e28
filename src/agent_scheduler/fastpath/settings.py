"""The fast path's part of the configuration. Only `config.schema` has defaults."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent_scheduler.binding.binder import BindSettings
from agent_scheduler.binding.calls import RateLimit
from agent_scheduler.binding.messages import MessageSettings
from agent_scheduler.binding.prebind import PREBIND_CONCURRENCY
from agent_scheduler.binding.preemption import EVICTION_CONCURRENCY
from agent_scheduler.binding.queue_admission import AdmissionSettings
from agent_scheduler.config.profiles import build_profiles
from agent_scheduler.config.schema import Configuration
from agent_scheduler.engine.decide.decide import ConflictPolicy
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.queueing.subqueues import QueueSettings
from agent_scheduler.engine.queues.usage import UsageSettings
from agent_scheduler.engine.shards.claims import ShardingMode
from agent_scheduler.objects.batch import DEFAULT_QUEUE
from kube_client.bind import DEFAULT_POLICY, BindPolicy
from kube_client.reflector import WatchTimes

#: Concurrent event writes. The rate is configured; this must only be sufficient to reach it.
_EVENT_CONCURRENCY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FastPathSettings:
    """The settings. Durations are in seconds."""

    profiles: tuple[Profile, ...]
    name: str
    identity: str
    workers: int
    candidates: int
    policy: ConflictPolicy
    initial_backoff: float
    max_backoff: float
    pop_from_backoff: bool
    pre_queueing_hints: bool
    max_in_unschedulable: float
    max_urgent_retries: int
    binds: RateLimit
    status_writes: RateLimit
    #: None: no events are written.
    events: RateLimit | None
    event_buffer: int
    #: Profiles of another scheduler that shares cluster, watches and binder: the inputs of their plugins are read,
    #: and their reservations are written and released. Their pods do not belong to the fast path.
    beside: tuple[Profile, ...] = ()
    #: The queue of the other scheduler's pods that name none.
    default_queue: str = DEFAULT_QUEUE
    #: Whether pods keep the gate of their queue's capacity until it has room; otherwise all gates are removed.
    queue_admission: bool = True
    #: Seconds for which a pod without a node may hold reserved room in its queue; 0: unlimited.
    reservation_timeout: float = 0.0
    #: Whether this process removes gates when it is its turn.
    removes_gates: bool = True
    #: Gates that are removed concurrently.
    gate_removal_workers: int = 64
    bind_policy: BindPolicy = DEFAULT_POLICY
    sharding: ShardingMode = ShardingMode.NONE
    #: The name of its NodeShard, if nodes are shared.
    shard: str = ""
    watch_times: WatchTimes = field(default_factory=WatchTimes)

    @property
    def messages(self) -> MessageSettings:
        return MessageSettings(
            name=self.name,
            identity=self.identity,
            status_writes=self.status_writes,
            events=self.events,
            event_buffer=self.event_buffer,
        )

    @property
    def binder(self) -> BindSettings:
        return BindSettings(policy=self.policy, concurrency=self.binds.concurrency, adapts=not self.binds.qps)

    @property
    def usage(self) -> UsageSettings:
        return UsageSettings(
            batch_schedulers=tuple(profile.scheduler_name for profile in self.beside),
            default_queue=self.default_queue,
            asks_queues=self.queue_admission,
        )

    @property
    def admission(self) -> AdmissionSettings:
        return AdmissionSettings(workers=self.gate_removal_workers, patience=self.reservation_timeout)

    @property
    def queue(self) -> QueueSettings:
        return QueueSettings(
            initial_backoff=self.initial_backoff,
            max_backoff=self.max_backoff,
            pop_from_backoff=self.pop_from_backoff,
            max_in_unschedulable=self.max_in_unschedulable,
            max_urgent_retries=self.max_urgent_retries,
            pre_queueing_hints=self.pre_queueing_hints,
        )

    @property
    def requests_at_a_time(self) -> int:
        """The limit of concurrent requests, without lists and watches."""
        events = self.events.concurrency if self.events is not None else 0
        own = self.binds.concurrency + self.status_writes.concurrency + events
        return own + EVICTION_CONCURRENCY + PREBIND_CONCURRENCY + self.gate_removal_workers


def settings_of(configuration: Configuration, *, identity: str) -> FastPathSettings:
    """Return the settings of a loaded `configuration` for the process `identity`."""
    connection, events, status = (configuration.client_connection, configuration.events, configuration.status_writes)
    return FastPathSettings(
        profiles=tuple(build_profiles(configuration).values()),
        name=configuration.profiles[0].scheduler_name,
        identity=identity,
        workers=configuration.worker_count,
        candidates=configuration.candidate_node_count,
        policy=ConflictPolicy(configuration.conflict_policy),
        initial_backoff=configuration.pod_initial_backoff_seconds,
        max_backoff=configuration.pod_max_backoff_seconds,
        pop_from_backoff=configuration.feature_gates["SchedulerPopFromBackoffQ"],
        pre_queueing_hints=configuration.feature_gates["SchedulerPreQueueingHints"],
        max_in_unschedulable=configuration.pod_max_in_unschedulable_pods_duration,
        max_urgent_retries=configuration.max_urgent_retries,
        binds=RateLimit(qps=connection.qps, burst=connection.burst, concurrency=configuration.bind_concurrency),
        status_writes=RateLimit(qps=status.qps, burst=status.burst, concurrency=status.concurrency),
        events=RateLimit(qps=events.qps, burst=events.burst, concurrency=_EVENT_CONCURRENCY)
        if events.enabled
        else None,
        event_buffer=events.buffer,
        removes_gates=_removes_gates(configuration),
        queue_admission=configuration.feature_gates["SchedulingGatesQueueAdmission"],
        reservation_timeout=configuration.queue_reservation_timeout,
        gate_removal_workers=configuration.gate_removal_worker_num,
        sharding=ShardingMode(configuration.sharding.mode),
        shard=configuration.sharding.name,
    )


def _removes_gates(configuration: Configuration) -> bool:
    """Return whether this process removes gates.

    Of processes that share nodes, only the batch scheduler knows all gangs.
    """
    when = configuration.gate_removal
    alone = configuration.sharding.mode == "none"
    return when == "always" or (when == "auto" and (alone or configuration.batch is not None))
