"""An OpenTelemetry collector for tests: accepts OTLP over HTTP and keeps the spans. Requires the extra `tracing`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from threading import Event, Thread
from typing import Any

from tests.support.needed import need


def tracing() -> None:
    """Skip or fail the test if the extra is not installed."""
    missing = "the extra tracing is not installed (pip install agent-scheduler[tracing])"
    need(find_spec("opentelemetry") is not None and find_spec("opentelemetry.proto") is not None, missing)


@dataclass(frozen=True)
class Span:
    trace: str
    id: str
    parent: str
    name: str
    began: int
    ended: int
    attributes: dict[str, Any]
    #: The message of an error status; otherwise empty.
    error: str
    resource: dict[str, Any]


class Collector:
    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[Span] = []
        self.paths: set[str] = set()
        #: Responses wait for this event.
        self.answers = Event()
        self.answers.set()
        #: The status of the responses.
        self.status = 200

    def trace(self, uid: str) -> list[Span]:
        """Return the spans of a pod in the order of their start, a parent before its children."""
        found = [span for span in self.spans if span.trace == uid.replace("-", "")]
        return sorted(found, key=lambda span: (span.began, -span.ended))

    def root(self, uid: str) -> Span | None:
        return next((span for span in self.trace(uid) if not span.parent), None)

    def take(self, body: bytes) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _plain(of_resource.resource.attributes)
            for of_scope in of_resource.scope_spans:
                self.spans += [_span(each, resource) for each in of_scope.spans]


def _span(span: Any, resource: dict[str, Any]) -> Span:
    return Span(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _plain(span.attributes),
        (span.status.message or "error") if span.status.code == 2 else "",
        resource,
    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def collector() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            it.answers.wait(30)
            it.paths.add(self.path)
            if it.status == 200:
                it.take(body)
            self.send_response(it.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    class Listening(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: object, address: object) -> None:
            """Ignore that the client has disconnected."""

    server = Listening(("127.0.0.1", 0), Handler)
    it = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield it
    finally:
        it.answers.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
