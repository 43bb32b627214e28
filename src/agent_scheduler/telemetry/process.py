"""The metrics that each of our processes has: what it asks of the API server, its configuration, its event loop.

Each kind of process adds what it does itself (`Metrics`: a scheduler). `docs/metrics.md` describes them all; a test
keeps the two equal.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import partial

from agent_scheduler.telemetry.families import Families

#: Of the text exposition format. A scraper that prefers another (OpenMetrics) accepts this one, too.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: Fine around 50 ms, and one bound at it: nothing is to keep the loop for longer, and a reading shows whether it did.
_PAUSE_SECONDS = (
    *(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005),
    *(0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
)


class ProcessMetrics:
    """Owner of every family of its process. There is no global registry."""

    def __init__(self, *, version: str) -> None:
        self.families = Families()
        self._of_python: Callable[[], bytes] | None = None
        self._api()
        self._process(version)

    def _api(self) -> None:
        make = self.families
        self.api_requests_total = make.counter(
            "agent_scheduler_api_requests_total",
            "Exchanges with the API server, by method and status; <error> if no answer came.",
            "method",
            "code",
        )
        self.watch_events_total = make.counter(
            "agent_scheduler_watch_events_total",
            "Changes of objects that lists and watches brought.",
            "kind",
            "type",
        )
        self.lists_total = make.counter(
            "agent_scheduler_lists_total",
            "Lists of all objects of a kind, by why: initial, or a relist because the watch could not go on.",
            "kind",
            "reason",
        )
        self.watch_steps_total = make.counter(
            "agent_scheduler_watch_steps_total",
            "What happened to a watch: watch (begun), failure, stale_list or duplicate (refused).",
            "kind",
            "step",
        )
        self.malformed_objects_total = make.counter(
            "agent_scheduler_malformed_objects_total",
            "Versions of objects with a part that has no meaning, such as a quantity that is no number.",
            "kind",
        )
        self.events_total = make.counter(
            "agent_scheduler_events_total", "Kubernetes events, by what became of them.", "result"
        )

    def _process(self, version: str) -> None:
        make = self.families
        self.leader_election_master_status = make.gauge(
            "leader_election_master_status",
            "1 while this process holds the lease of that name, else 0.",
            "name",
        )
        self.loop_lag_seconds = make.histogram(
            "agent_scheduler_loop_lag_seconds",
            "How late the event loop ran a timer: how long something else kept it busy.",
            bounds=_PAUSE_SECONDS,
        )
        self.gc_pause_seconds = make.histogram(
            "agent_scheduler_gc_pause_seconds",
            "Duration of a garbage collection, by generation.",
            "generation",
            bounds=_PAUSE_SECONDS,
        )
        self.config_reloads_total = make.counter(
            "agent_scheduler_config_reloads_total",
            "Changes of the configuration file that were applied or refused.",
            "result",
        )
        for result in ("applied", "refused"):
            self.config_reloads_total.labels(result)
        self.config_last_reload_successful = make.gauge(
            "agent_scheduler_config_last_reload_successful",
            "1 while the configuration file says what is in effect, 0 since a change of it was refused.",
        )
        self.config_last_reload_success_timestamp_seconds = make.gauge(
            "agent_scheduler_config_last_reload_success_timestamp_seconds",
            "When the configuration in effect was loaded.",
        )
        self.build_info = make.gauge("agent_scheduler_build_info", "Always 1.", "version", "python")
        self.build_info.labels(version, platform.python_version()).set(1)

    def api_request(self, method: str, status: int) -> None:
        """One exchange with the API server; `status` 0: no answer. Fits the transport's `observe`."""
        self.api_requests_total.labels(method, str(status) if status else "<error>").inc()

    def config_loaded(self, at: float) -> None:
        """A configuration took effect at that Unix time."""
        self.config_last_reload_successful.labels().set(1)
        self.config_last_reload_success_timestamp_seconds.labels().set(at)

    def config_applied(self, at: float) -> None:
        self.config_reloads_total.labels("applied").inc()
        self.config_loaded(at)

    def config_refused(self) -> None:
        self.config_reloads_total.labels("refused").inc()
        self.config_last_reload_successful.labels().set(0)

    def watched(self, kind: str, what: str) -> None:
        """A reflector did `what`."""
        if what == "malformed":
            self.malformed_objects_total.labels(kind).inc()
        elif what.startswith("list_"):
            self.lists_total.labels(kind, what.removeprefix("list_")).inc()
        else:
            self.watch_steps_total.labels(kind, what).inc()

    def load(self) -> None:
        """Loads what only an exposition needs, which takes long the first time; may be called in any thread."""
        if self._of_python is None:
            from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest

            # What prometheus-client measures of any Python process; its own metrics are too slow for ours.
            registry = CollectorRegistry()
            ProcessCollector(registry=registry)
            GCCollector(registry=registry)
            self._of_python = partial(generate_latest, registry)

    def exposition(self) -> tuple[bytes, str]:
        """All metrics as text, and its content type."""
        self.load()
        assert self._of_python is not None
        return self.families.text().encode() + self._of_python(), CONTENT_TYPE
