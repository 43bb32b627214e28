"""The metrics that all our processes have: API requests, configuration, event loop.

Each kind of process adds its own (`Metrics`: a scheduler). `docs/metrics.md` describes all of them; a test keeps it
in step.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import partial

from agent_scheduler.telemetry.families import Families
from agent_scheduler.telemetry.handling import ObjectHandling
from agent_scheduler.telemetry.logs import lost_lines
from agent_scheduler.telemetry.steps import LoopSteps

#: The type of the text exposition format. Scrapers that prefer another one (OpenMetrics) accept it, too.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: Fine around 50 ms, with one bound at it: that is the limit for blocking the loop, and metrics show whether it is
#: met.
_PAUSE_SECONDS = (
    *(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005),
    *(0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
)


class ProcessMetrics:
    """Owns every family of its process. There is no global registry."""

    def __init__(self, *, version: str) -> None:
        self.families = Families()
        self._of_python: Callable[[], bytes] | None = None
        self._api()
        self._process(version)

    def _api(self) -> None:
        make = self.families
        self.api_requests_total = make.counter(
            "agent_scheduler_api_requests_total",
            "Requests to the API server, by method and status; <error> without response.",
            "method",
            "code",
        )
        self.watch_events_total = make.counter(
            "agent_scheduler_watch_events_total", "Changes of objects from lists and watches.", "kind", "type"
        )
        self.lists_total = make.counter(
            "agent_scheduler_lists_total",
            "Lists of all objects of a kind, by reason: initial, or a relist because the watch could not continue.",
            "kind",
            "reason",
        )
        self.watch_steps_total = make.counter(
            "agent_scheduler_watch_steps_total",
            "Events of a watch: watch (started), failure, stale_list or duplicate (refused).",
            "kind",
            "step",
        )
        self.malformed_objects_total = make.counter(
            "agent_scheduler_malformed_objects_total",
            "Versions of objects with an invalid part, such as a quantity that is not a number.",
            "kind",
        )
        self.events_total = make.counter("agent_scheduler_events_total", "Kubernetes events, by result.", "result")

    def _process(self, version: str) -> None:
        make = self.families
        self.leader_election_master_status = make.gauge(
            "leader_election_master_status", "1 while this process holds the lease of that name, else 0.", "name"
        )
        self.loop_lag_seconds = make.histogram(
            "agent_scheduler_loop_lag_seconds",
            "Delay of a timer of the event loop, during which something else kept the loop busy.",
            bounds=_PAUSE_SECONDS,
        )
        self.gc_pause_seconds = make.histogram(
            "agent_scheduler_gc_pause_seconds",
            "Duration of a garbage collection, by generation.",
            "generation",
            bounds=_PAUSE_SECONDS,
        )
        self.steps = LoopSteps(make)
        self.handling = ObjectHandling(make, self.steps)
        self.config_reloads_total = make.counter(
            "agent_scheduler_config_reloads_total",
            "Changes of the configuration file that were applied or refused.",
            "result",
        )
        for result in ("applied", "refused"):
            self.config_reloads_total.labels(result)
        self.config_last_reload_successful = make.gauge(
            "agent_scheduler_config_last_reload_successful",
            "1 while the configuration file is in effect, 0 after a change of it was refused.",
        )
        self.config_last_reload_success_timestamp_seconds = make.gauge(
            "agent_scheduler_config_last_reload_success_timestamp_seconds",
            "The time when the effective configuration was loaded.",
        )
        self.log_lines_lost_total = make.counter(
            "agent_scheduler_log_lines_lost_total",
            "Lines that the output of the log did not accept, because it is full, closed or stalled.",
        )
        self.build_info = make.gauge("agent_scheduler_build_info", "Always 1.", "version", "python")
        self.build_info.labels(version, platform.python_version()).set(1)

    def api_request(self, method: str, status: int) -> None:
        """Record a request to the API server; `status` is 0 without response. Fits the transport's `observe`."""
        self.api_requests_total.labels(method, str(status) if status else "<error>").inc()

    def config_loaded(self, at: float) -> None:
        """Record that a configuration took effect at that Unix time."""
        self.config_last_reload_successful.labels().set(1)
        self.config_last_reload_success_timestamp_seconds.labels().set(at)

    def config_applied(self, at: float) -> None:
        self.config_reloads_total.labels("applied").inc()
        self.config_loaded(at)

    def config_refused(self) -> None:
        self.config_reloads_total.labels("refused").inc()
        self.config_last_reload_successful.labels().set(0)

    def watched(self, kind: str, what: str) -> None:
        """Record that a reflector did `what`."""
        if what == "malformed":
            self.malformed_objects_total.labels(kind).inc()
        elif what.startswith("list_"):
            self.lists_total.labels(kind, what.removeprefix("list_")).inc()
        else:
            self.watch_steps_total.labels(kind, what).inc()

    def load(self) -> None:
        """Load the libraries for an exposition, which is slow the first time. It may be called in any thread."""
        if self._of_python is None:
            from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest

            # prometheus-client's metrics of the Python process; for our own metrics it is too slow.
            registry = CollectorRegistry()
            ProcessCollector(registry=registry)
            GCCollector(registry=registry)
            self._of_python = partial(generate_latest, registry)

    def exposition(self) -> tuple[bytes, str]:
        """Return all metrics as text, and the content type."""
        self.load()
        self.log_lines_lost_total.labels().value = float(lost_lines())
        assert self._of_python is not None
        return self.families.text().encode() + self._of_python(), CONTENT_TYPE
