"""To whom the parts of a scheduler report: to metrics and logs, and, where that is configured, to traces as well."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from agent_scheduler import __version__
from agent_scheduler.batch.waiting import WaitingPods
from agent_scheduler.config.schema import Configuration, Tracing
from agent_scheduler.kube.retry import Timing
from agent_scheduler.telemetry.metrics import Metrics
from agent_scheduler.telemetry.observers import FastPathObserver, QueueRecorder
from apimachinery.errors import ConfigurationError

#: Where a collector takes traces, if its URL does not say.
_TRACES = "/v1/traces"


class Reports:
    """Without traces."""

    #: As `FastPath`'s `left`.
    left: Callable[[str, str], object] | None = None

    def __init__(self, observer: FastPathObserver, recorder: QueueRecorder) -> None:
        self.observer = observer
        self.recorder = recorder

    def waiting(self, scheduler_name: str) -> WaitingPods:
        """The pods of the batch scheduler."""
        return WaitingPods(scheduler_name)

    async def close(self) -> None: ...


def reports_of(configuration: Configuration, metrics: Metrics, *, timing: Timing, identity: str) -> Reports:
    """Raises ConfigurationError where traces are asked for and cannot be made."""
    clock, policy = timing.clock, configuration.conflict_policy
    tracing = configuration.tracing
    if tracing is not None and tracing.sampling_rate_per_million:
        return _traced(tracing, metrics, timing=timing, identity=identity, policy=policy)
    return Reports(FastPathObserver(metrics, clock=clock, policy=policy), QueueRecorder(metrics, clock=clock))


def _traced(tracing: Tracing, metrics: Metrics, *, timing: Timing, identity: str, policy: str) -> Reports:
    # Only here: nothing of it is to be loaded where nothing is traced.
    from agent_scheduler.process.tracing import TracedReports
    from agent_scheduler.telemetry.spans import Spans
    from agent_scheduler.telemetry.traces import PodTraces, TracedObserver, TracedQueueRecorder

    counts, clock = metrics.traces, timing.clock
    resource = {
        "service.name": "agent-scheduler",
        "service.version": __version__,
        "service.instance.id": identity,
    }
    try:
        spans = Spans(endpoint=_traces_url(tracing.endpoint), resource=resource, counts=counts)
    except ImportError as error:
        raise ConfigurationError(
            f"tracing: needs OpenTelemetry's libraries, and {error.name or error} is not installed; "
            "install agent-scheduler[tracing], or leave the section out"
        ) from None
    except ValueError as error:
        raise ConfigurationError(
            f"tracing: a variable OTEL_* of the environment is no good: {error}"
        ) from None
    traces = PodTraces(
        spans, per_million=tracing.sampling_rate_per_million, counts=counts, clock=clock, now=timing.now
    )
    return TracedReports(
        TracedObserver(metrics, traces, clock=clock, policy=policy),
        TracedQueueRecorder(metrics, traces, clock=clock),
        traces,
        spans,
    )


def _traces_url(endpoint: str) -> str:
    """A collector's URL without a path stands for all that it takes, as in OTEL_EXPORTER_OTLP_ENDPOINT."""
    return endpoint.rstrip("/") + _TRACES if urlsplit(endpoint).path in ("", "/") and endpoint else endpoint
