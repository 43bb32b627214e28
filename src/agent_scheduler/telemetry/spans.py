"""Sends spans to a collector with OpenTelemetry's SDK, which is loaded when the first `Spans` is created.

Spans are created by one thread and sent by another one in batches. A limited number may wait; others are dropped and
counted, so a slow or absent collector costs limited memory, and nothing ever waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from threading import Thread
from typing import Any, Final
from uuid import UUID

from agent_scheduler.telemetry.logs import FilteringBoundLogger, LimitedLog, get_logger

#: The limit of spans that wait to be sent.
WAITING: Final = 4096
#: Seconds for the remaining spans when the process ends.
FLUSH_SECONDS: Final = 5.0

Attributes = Mapping[str, str | int | Sequence[str]]


class TraceCounts:
    """Counts of spans and traces by result.

    The sending thread counts `exported` and `failed`, the other one the rest.
    """

    def __init__(self) -> None:
        self.exported = 0
        self.failed = 0
        self.dropped = 0
        #: Pods that were sampled while there were too many traces.
        self.untraced = 0

    def spans(self) -> Mapping[str, float]:
        return {"exported": self.exported, "failed": self.failed, "dropped": self.dropped}


def trace_id(uid: str) -> int:
    """Return the trace ID of a pod, so that its UID leads to its trace, regardless of the process."""
    try:
        number = UUID(uid).int
    except ValueError:
        number = int.from_bytes(blake2b(uid.encode(), digest_size=16).digest(), "big")
    # 0 is not a valid trace ID.
    return number or 1


class Spans:
    """Owns the sending thread. Times are nanoseconds since 1970."""

    def __init__(
        self,
        *,
        endpoint: str,
        resource: Mapping[str, str],
        counts: TraceCounts,
        log: FilteringBoundLogger | None = None,
    ) -> None:
        """`endpoint` is the URL for batches; if empty, OTEL_EXPORTER_OTLP_ENDPOINT or a collector on this host is used.

        `resource` has the attributes of the process, unless OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME override
        them.

        Raises ImportError without the SDK, and ValueError for an invalid environment variable.
        """
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON
        from opentelemetry.trace import StatusCode, set_span_in_context

        self._log = get_logger("traces") if log is None else log
        said = _LastLogLine()
        logger = logging.getLogger("opentelemetry")
        # The SDK logs every unsent batch; this logs once a minute.
        logger.handlers[:], logger.propagate = [said], False
        self._exporter = OTLPSpanExporter(endpoint=endpoint or None)
        sending = _Sending(self._exporter, SpanExportResult.SUCCESS, counts, said, self._log)
        # Twice the limit of `_Waiting`, so the SDK never drops a span itself.
        batches = BatchSpanProcessor(sending, max_queue_size=2 * WAITING)
        self._waiting = _Waiting(batches, counts)
        self._ids = _Ids()
        given = {**resource, **OTELResourceDetector().detect().attributes}
        self._provider = TracerProvider(
            sampler=ALWAYS_ON, resource=Resource.create(given), shutdown_on_exit=False, id_generator=self._ids
        )
        self._provider.add_span_processor(self._waiting)
        self._tracer = self._provider.get_tracer("agent_scheduler", resource.get("service.version"))
        if said.last:
            # A problem with an environment variable, for which the SDK uses a default.
            self._log.warning("OpenTelemetry", problem=said.last)
        self._error, self._within = StatusCode.ERROR, set_span_in_context

    def begin(self, name: str, uid: str, at: int, attributes: Attributes) -> Any:
        """Start the first span of a pod's trace."""
        self._ids.next_trace = trace_id(uid)
        # An own context: otherwise it would be the child of the thread's current span.
        return self._tracer.start_span(name, context={}, attributes=attributes, start_time=at)

    def within(self, parent: Any, name: str, began: int, ended: int, attributes: Attributes, problem: str = "") -> Any:
        """Create a finished span. With a `problem` its status is an error."""
        context = self._within(parent, {})
        span = self._tracer.start_span(name, context=context, attributes=attributes, start_time=began)
        if problem:
            span.set_status(self._error, problem)
        span.end(ended)
        return span

    def end(self, span: Any, at: int, attributes: Attributes) -> None:
        span.set_attributes(attributes)
        span.end(at)

    async def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Send the waiting spans within `seconds`."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            try:
                self._provider.shutdown()
            finally:
                # The loop may have ended meanwhile.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(over.set)

        # A daemon, so that an unresponsive collector cannot keep the process running.
        Thread(target=shut_down, name="spans", daemon=True).start()
        try:
            async with asyncio.timeout(seconds):
                await over.wait()
        except TimeoutError:
            self._exporter.shutdown()
            self._log.warning("spans not sent before the end", spans=self._waiting.number)


class _Waiting:
    """Limits the number of spans in the SDK's queue (a `SpanProcessor`)."""

    def __init__(self, batches: Any, counts: TraceCounts) -> None:
        self._batches = batches
        self._counts = counts
        self._given = 0

    @property
    def number(self) -> int:
        """The number of unsent spans."""
        return self._given - self._counts.exported - self._counts.failed

    def on_start(self, span: Any, parent_context: Any = None) -> None: ...
    def _on_ending(self, span: Any) -> None: ...

    def on_end(self, span: Any) -> None:
        if self.number >= WAITING:
            self._counts.dropped += 1
            return
        self._given += 1
        self._batches.on_end(span)

    def shutdown(self) -> None:
        self._batches.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return bool(self._batches.force_flush(timeout_millis))


class _Sending:
    """Counts batches by result (a `SpanExporter`). Called in the SDK's thread."""

    def __init__(
        self, exporter: Any, success: object, counts: TraceCounts, said: _LastLogLine, log: FilteringBoundLogger
    ) -> None:
        self._exporter = exporter
        self._success = success
        self._counts = counts
        self._said = said
        self._log = log
        self._limited_log = LimitedLog(self._log, clock=time.monotonic)

    def export(self, spans: Sequence[Any]) -> Any:
        try:
            result = self._exporter.export(spans)
        except Exception as error:
            self._said.last = f"{type(error).__name__}: {error}"
            result = None
        if result is self._success:
            self._counts.exported += len(spans)
        else:
            self._counts.failed += len(spans)
            self._limited_log.warning("spans not sent", spans=len(spans), problem=self._said.last)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


class _LastLogLine(logging.Handler):
    """Keeps the last line that the SDK logged."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self.last = record.getMessage()


class _Ids:
    """Generates random span IDs, and returns the predetermined ID for the next trace (an `IdGenerator`)."""

    def __init__(self) -> None:
        self.next_trace = 1
        self._random = random.Random(os.urandom(16))

    def generate_trace_id(self) -> int:
        return self.next_trace

    def generate_span_id(self) -> int:
        return self._random.getrandbits(64) or 1

    def is_trace_id_random(self) -> bool:
        return False
