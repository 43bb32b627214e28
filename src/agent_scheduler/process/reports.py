"""The receivers of a scheduler's reports: metrics and logs, and traces if configured."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agent_scheduler import __version__
from agent_scheduler.batch.waiting import BatchWaitingPods
from agent_scheduler.config.schema import Configuration, Tracing
from agent_scheduler.fastpath.scheduler import Receivers
from agent_scheduler.telemetry.metrics import Metrics
from agent_scheduler.telemetry.observers import MetricsObserver, MetricsQueueRecorder
from apimachinery.errors import ConfigurationError
from kube_client.retry import Timing

if TYPE_CHECKING:
    from agent_scheduler.telemetry.spans import Spans
    from agent_scheduler.telemetry.traces import PodTraces

#: The path of a collector's traces if its URL has no path.
_TRACES = "/v1/traces"


class ProcessReports:
    """Reports without traces."""

    def __init__(self, observer: MetricsObserver, receivers: Receivers) -> None:
        """`observer` is that of `receivers`."""
        self.observer = observer
        self.receivers = receivers

    def follow(self, waiting: BatchWaitingPods) -> None:
        """Report the batch scheduler's pods, too."""

    async def close(self) -> None: ...


class TracedReports(ProcessReports):
    """Owns the traces and their exporter."""

    def __init__(
        self, observer: MetricsObserver, recorder: MetricsQueueRecorder, traces: PodTraces, spans: Spans
    ) -> None:
        super().__init__(observer, Receivers(observer, recorder, traces.left))
        self._traces = traces
        self._spans = spans

    def follow(self, waiting: BatchWaitingPods) -> None:
        waiting.seen.connect(self._traces.waits_for_session)
        waiting.left.connect(self._traces.left)

    async def close(self) -> None:
        self._traces.close()
        await self._spans.close()


def reports_of(configuration: Configuration, metrics: Metrics, *, timing: Timing, identity: str) -> ProcessReports:
    """Create the reports. Raises ConfigurationError if traces are configured but impossible."""
    clock, policy = timing.clock, configuration.conflict_policy
    tracing = configuration.tracing
    if tracing is not None and tracing.sampling_rate_per_million:
        return _traced(tracing, metrics, timing=timing, identity=identity, policy=policy)
    observer = MetricsObserver(metrics, clock=clock, policy=policy)
    return ProcessReports(observer, Receivers(observer, MetricsQueueRecorder(metrics, clock=clock)))


def _traced(tracing: Tracing, metrics: Metrics, *, timing: Timing, identity: str, policy: str) -> ProcessReports:
    # Imported here to load nothing of it without traces.
    from agent_scheduler.telemetry.spans import Spans
    from agent_scheduler.telemetry.traces import PodTraces, TracedObserver, TracedQueueRecorder

    counts, clock = metrics.traces, timing.clock
    resource = {"service.name": "agent-scheduler", "service.version": __version__, "service.instance.id": identity}
    try:
        spans = Spans(endpoint=_traces_url(tracing.endpoint), resource=resource, counts=counts)
    except ImportError as error:
        raise ConfigurationError(
            f"tracing: needs OpenTelemetry's libraries, and {error.name or error} is not installed; "
            "install agent-scheduler[tracing], or remove the section"
        ) from None
    except ValueError as error:
        raise ConfigurationError(f"tracing: an environment variable OTEL_* is invalid: {error}") from None
    traces = PodTraces(spans, per_million=tracing.sampling_rate_per_million, counts=counts, clock=clock, now=timing.now)
    return TracedReports(
        TracedObserver(metrics, traces, clock=clock, policy=policy),
        TracedQueueRecorder(metrics, traces, clock=clock),
        traces,
        spans,
    )


def _traces_url(endpoint: str) -> str:
    """Return the URL for traces. A URL without a path is a collector's base URL, as in OTEL_EXPORTER_OTLP_ENDPOINT."""
    return endpoint.rstrip("/") + _TRACES if urlsplit(endpoint).path in ("", "/") and endpoint else endpoint
