"""The settings of the batch scheduler, read from the configuration. All defaults are set in `config`."""

from __future__ import annotations

from dataclasses import dataclass

from agent_scheduler.binding.calls import RateLimit
from agent_scheduler.config.schema import Configuration
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.queueing.subqueues import QueueSettings
from agent_scheduler.engine.session.conf import SessionConf
from agent_scheduler.engine.session.profile import profile_of

#: Concurrent writes of one kind; enough to reach the rate that is configured for status writes.
WRITES_AT_A_TIME = 4
#: Concurrent evictions.
EVICTIONS_AT_A_TIME = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """Settings of the batch scheduler. Durations are in seconds."""

    scheduler_name: str
    sessions: SessionConf
    #: The pause between the end of a session and the start of the next one.
    schedule_period: float
    #: The queue of groups that do not name one.
    default_queue: str
    #: The process's name in events.
    identity: str
    #: The time after which a pod is tried again without an event that helps it.
    max_in_unschedulable: float
    pre_queueing_hints: bool
    #: The limit of each of three kinds of writes: conditions of pods, statuses of groups, statuses of queues.
    status_writes: RateLimit
    #: None if no events are written.
    events: RateLimit | None
    event_buffer: int
    #: Whether each bound member of a group gets an event, instead of one for its group.
    member_events: bool

    @property
    def profile(self) -> Profile:
        """The plugins that filter and score nodes."""
        return profile_of(self.sessions, self.scheduler_name)

    @property
    def queue(self) -> QueueSettings:
        """The settings of the queue. There is no backoff, since `schedule_period` delays retries."""
        return QueueSettings(
            max_backoff=0, max_in_unschedulable=self.max_in_unschedulable, pre_queueing_hints=self.pre_queueing_hints
        )

    @property
    def requests_at_a_time(self) -> int:
        """The maximum number of concurrent requests."""
        events = 0 if self.events is None else self.events.concurrency
        return self.status_writes.concurrency + events + 2 * WRITES_AT_A_TIME + EVICTIONS_AT_A_TIME


def batch_settings_of(configuration: Configuration, *, identity: str) -> BatchSettings | None:
    """Return the settings, or None if the configuration has no `batch` section."""
    batch, events, status = configuration.batch, configuration.events, configuration.status_writes
    if batch is None:
        return None
    return BatchSettings(
        scheduler_name=batch.scheduler_name,
        sessions=batch.sessions,
        schedule_period=batch.schedule_period,
        default_queue=batch.default_queue,
        identity=identity,
        max_in_unschedulable=configuration.pod_max_in_unschedulable_pods_duration,
        pre_queueing_hints=configuration.feature_gates["SchedulerPreQueueingHints"],
        status_writes=RateLimit(qps=status.qps, burst=status.burst, concurrency=status.concurrency),
        events=RateLimit(qps=events.qps, burst=events.burst, concurrency=WRITES_AT_A_TIME) if events.enabled else None,
        event_buffer=events.buffer,
        member_events=events.members,
    )
