"""What the batch scheduler needs of the configuration. Defaults are `config`'s alone; there are none here."""

from __future__ import annotations

from dataclasses import dataclass

from agent_scheduler.binding.calls import RateLimit
from agent_scheduler.config.schema import Configuration
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.queueing.subqueues import QueueSettings
from agent_scheduler.engine.session.conf import SessionConf
from agent_scheduler.engine.session.profile import profile_of

#: Writes of one kind at a time. Their rate is what is configured for status writes; this has to be enough to reach it.
WRITES_AT_A_TIME = 4
#: Evictions under way at a time.
EVICTIONS_AT_A_TIME = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """How to schedule in sessions. Durations in seconds."""

    scheduler_name: str
    sessions: SessionConf
    #: From the beginning of one session to that of the next, at least.
    schedule_period: float
    #: The queue of groups that name none.
    default_queue: str
    #: Of the process, in events.
    identity: str
    #: After so long a pod is tried again though no event has helped it.
    max_in_unschedulable: float
    pre_queueing_hints: bool
    #: Of conditions of pods; and, as many again each, of statuses of groups, and of queues.
    status_writes: RateLimit
    #: None: no events are written.
    events: RateLimit | None
    event_buffer: int

    @property
    def profile(self) -> Profile:
        """The plugins by which nodes are judged."""
        return profile_of(self.sessions, self.scheduler_name)

    @property
    def queue(self) -> QueueSettings:
        """Nobody backs off: the period between sessions is pause enough."""
        return QueueSettings(
            max_backoff=0,
            max_in_unschedulable=self.max_in_unschedulable,
            pre_queueing_hints=self.pre_queueing_hints,
        )

    @property
    def requests_at_a_time(self) -> int:
        """Requests that may be under way at once."""
        events = 0 if self.events is None else self.events.concurrency
        return self.status_writes.concurrency + events + 2 * WRITES_AT_A_TIME + EVICTIONS_AT_A_TIME


def batch_settings_of(configuration: Configuration, *, identity: str) -> BatchSettings | None:
    """None where there is no batch scheduler."""
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
        events=RateLimit(qps=events.qps, burst=events.burst, concurrency=WRITES_AT_A_TIME)
        if events.enabled
        else None,
        event_buffer=events.buffer,
    )
