"""What fails for many objects alike is told at once, and then now and then, with its number."""

from __future__ import annotations

import structlog
from structlog.testing import capture_logs

from agent_scheduler.kube.repeated import Repeated


def test_a_flood_of_one_warning_is_a_line_a_minute_with_its_number() -> None:
    now = 100.0
    with capture_logs() as logged:
        repeated = Repeated(structlog.get_logger(), "not_written", clock=lambda: now)
        for number in range(1000):
            repeated.warn(pod=f"p-{number}")
        now += 59
        repeated.warn(pod="late")
        assert logged == [{"event": "not_written", "log_level": "warning", "pod": "p-0"}]
        now += 1
        repeated.warn(pod="last")
        assert logged[1:] == [
            {"event": "not_written", "log_level": "warning", "pod": "last", "repeated": 1000}
        ]
        now += 60
        repeated.warn(pod="alone")
        assert "repeated" not in logged[2]
