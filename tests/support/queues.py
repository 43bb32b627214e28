"""Builds scheduling queues for tests, which say only what they are about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_scheduler.engine.events.hints import HintMap
from agent_scheduler.engine.framework.plugin import PreEnqueue
from agent_scheduler.engine.queueing.queue import QueueSignals, SchedulingQueue
from agent_scheduler.engine.queueing.record import NullRecorder, QueueRecorder
from agent_scheduler.engine.queueing.subqueues import QueueSettings

#: Signals without effect.
NO_SIGNALS = QueueSignals(ready=lambda: None, deadline_moved=lambda: None)


def scheduling_queue(
    hint_maps: Mapping[str, HintMap],
    *,
    clock: Callable[[], float] = lambda: 0.0,
    pre_enqueue: Mapping[str, Sequence[PreEnqueue]] | None = None,
    settings: QueueSettings | None = None,
    signals: QueueSignals = NO_SIGNALS,
    recorder: QueueRecorder | None = None,
    is_pending: Callable[[str], bool] = lambda uid: True,
    **changes: Any,
) -> SchedulingQueue:
    """Return a queue; `changes` are settings that differ from the defaults."""
    return SchedulingQueue(
        clock=clock,
        hint_maps=hint_maps,
        pre_enqueue=pre_enqueue or {},
        settings=settings or QueueSettings(**changes),
        signals=signals,
        recorder=recorder or NullRecorder(),
        is_pending=is_pending,
    )
