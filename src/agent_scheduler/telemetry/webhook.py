"""The metrics of a webhook of admission. Labels are paths that it serves and words of closed sets."""

from __future__ import annotations

from collections.abc import Iterable

from agent_scheduler.telemetry.process import ProcessMetrics
from agent_scheduler.telemetry.series import exponential

#: What becomes of a review: see `docs/metrics.md`.
RESULTS = ("allowed", "patched", "denied", "unreadable", "not_ready", "failed")

#: From a pod of which nothing is wanted to a queue among ten thousand.
_REVIEW_SECONDS = exponential(0.00001, 2, 14)


class WebhookMetrics(ProcessMetrics):
    """Owner of every family of the process. An attribute is named as its metric, without prefix.

    `read` of a family is given the process (`process.webhook.WebhookProcess`), at each scrape.
    """

    def __init__(self, *, version: str) -> None:
        super().__init__(version=version)
        make = self.families
        self.webhook_reviews_total = make.counter(
            "agent_scheduler_webhook_reviews_total",
            "Admission reviews, by what became of them.",
            "path",
            "result",
        )
        self.webhook_review_duration_seconds = make.histogram(
            "agent_scheduler_webhook_review_duration_seconds",
            "Duration of deciding on an admission review, from its body to that of the answer.",
            "path",
            bounds=_REVIEW_SECONDS,
        )
        make.gauge(
            "agent_scheduler_webhook_certificate_expiry_timestamp_seconds",
            "When the serving certificate ends, if it is one that the webhook made itself.",
            read=lambda of: of.certificate_expiry if of.certificate_expiry else {},
        )

    def serve(self, paths: Iterable[str]) -> None:
        """Has all series of `paths`, so that none begins with a value."""
        for path in paths:
            for result in RESULTS:
                self.webhook_reviews_total.labels(path, result)
