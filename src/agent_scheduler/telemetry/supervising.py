"""The metrics of a supervisor of several scheduler processes, which has none of their own."""

from __future__ import annotations

from agent_scheduler.telemetry.metrics import ShardMetrics


class SupervisorMetrics(ShardMetrics):
    """An attribute is named as its metric, without prefix."""

    def __init__(self, *, version: str, children: int = 0) -> None:
        super().__init__(version=version)
        self.children_ended_total = self.families.counter(
            "agent_scheduler_children_ended_total",
            "Scheduler processes that ended though nobody had asked them to, by their number; each is started again.",
            "child",
        )
        for number in range(children):
            self.children_ended_total.labels(str(number))
