"""A scheduler's reports with traces of pods."""

from __future__ import annotations

from agent_scheduler.batch.waiting import BatchWaitingPods
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.fastpath.scheduler import Receivers
from agent_scheduler.process.reports import ProcessReports
from agent_scheduler.telemetry.observers import MetricsObserver, MetricsQueueRecorder
from agent_scheduler.telemetry.spans import Spans
from agent_scheduler.telemetry.traces import PodTraces


class TracedReports(ProcessReports):
    """Owns the traces and their exporter."""

    def __init__(
        self, observer: MetricsObserver, recorder: MetricsQueueRecorder, traces: PodTraces, spans: Spans
    ) -> None:
        super().__init__(observer, Receivers(observer, recorder, traces.left))
        self._traces = traces
        self._spans = spans

    def waiting(self, scheduler_name: str) -> BatchWaitingPods:
        return _TracedWaitingPods(scheduler_name, self._traces)

    async def close(self) -> None:
        self._traces.close()
        await self._spans.close()


class _TracedWaitingPods(BatchWaitingPods):
    def __init__(self, scheduler_name: str, traces: PodTraces) -> None:
        super().__init__(scheduler_name)
        self._traces = traces

    def add(self, pod: PodInfo) -> None:
        super().add(pod)
        self._traces.waits_for_session(pod)

    def delete(self, uid: str, *, node_name: str = "") -> None:
        super().delete(uid, node_name=node_name)
        self._traces.left(uid, node_name)
