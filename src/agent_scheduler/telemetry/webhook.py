"""The metrics of an admission webhook. Labels are its paths, and values of closed sets."""

from __future__ import annotations

from collections.abc import Iterable

from agent_scheduler.telemetry.process import ProcessMetrics
from agent_scheduler.telemetry.series import exponential

#: The results of a review: see `docs/metrics.md`.
RESULTS = ("allowed", "patched", "denied", "unreadable", "not_ready", "failed")

#: From a pod without changes to a queue among ten thousand.
_REVIEW_SECONDS = exponential(0.00001, 2, 14)


class WebhookMetrics(ProcessMetrics):
    """Owns every family of the process. An attribute has the name of its metric without prefix.

    `read` of a family receives the process (`process.webhook.WebhookProcess`) at each scrape.
    """

    def __init__(self, *, version: str) -> None:
        super().__init__(version=version)
        make = self.families
        self.webhook_reviews_total = make.counter(
            "agent_scheduler_webhook_reviews_total", "Admission reviews, by result.", "path", "result"
        )
        self.webhook_review_duration_seconds = make.histogram(
            "agent_scheduler_webhook_review_duration_seconds",
            "Duration of an admission review, from its request body to the response body.",
            "path",
            bounds=_REVIEW_SECONDS,
        )
        make.gauge(
            "agent_scheduler_webhook_certificate_expiry_timestamp_seconds",
            "When the serving certificate expires, if the webhook created it.",
            read=lambda of: of.certificate_expiry if of.certificate_expiry else {},
        )

    def serve(self, paths: Iterable[str]) -> None:
        """Create all series of `paths`, so that each begins at 0."""
        for path in paths:
            for result in RESULTS:
                self.webhook_reviews_total.labels(path, result)
