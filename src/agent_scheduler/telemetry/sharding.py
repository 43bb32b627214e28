"""The metrics of the sharding controller. Labels are names of configured shards and words of closed sets."""

from __future__ import annotations

from agent_scheduler.telemetry.process import ProcessMetrics
from agent_scheduler.telemetry.series import exponential

#: From a change of one pod to a million nodes from scratch.
_PLAN_SECONDS = exponential(0.0001, 2, 18)

#: What becomes of a write: see `docs/metrics.md`.
WRITES = ("created", "updated", "deleted", "conflict", "failed", "too_large")


class ShardingMetrics(ProcessMetrics):
    """Owner of every family of the process. An attribute is named as its metric, without prefix.

    `read` of a family is given the controller (`controllers.sharding.controller.ShardingController`), at each scrape.
    """

    def __init__(self, *, version: str) -> None:
        super().__init__(version=version)
        make = self.families
        self.sharding_plan_duration_seconds = make.histogram(
            "agent_scheduler_sharding_plan_duration_seconds",
            "Duration of deciding which node is in which shard.",
            bounds=_PLAN_SECONDS,
        )
        self.sharding_nodes = make.gauge(
            "agent_scheduler_sharding_nodes",
            "Nodes that a shard is to have, by the last plan.",
            "shard",
            read=lambda of: of.plan.counts if of.plan else {},
        )
        self.sharding_nodes_short = make.gauge(
            "agent_scheduler_sharding_nodes_short",
            "Nodes that a shard lacks of its minimum.",
            "shard",
            read=lambda of: of.plan.short if of.plan else {},
        )
        self.sharding_nodes_unassigned = make.gauge(
            "agent_scheduler_sharding_nodes_unassigned",
            "Nodes that no shard is to have, by the last plan.",
            read=lambda of: len(of.plan.unassigned) if of.plan else {},
        )
        self.sharding_moves_total = make.counter(
            "agent_scheduler_sharding_moves_total",
            "Nodes that writes of a shard have added to it and removed from it.",
            "shard",
            "change",
        )
        self.sharding_writes_total = make.counter(
            "agent_scheduler_sharding_writes_total",
            "Writes of a NodeShard, by what became of them.",
            "result",
        )
        for result in WRITES:
            self.sharding_writes_total.labels(result)
        self.sharding_foreign_shards = make.gauge(
            "agent_scheduler_sharding_foreign_shards",
            "NodeShards that have the name of a configured shard and belong to somebody else.",
            read=lambda of: of.reports.foreign_count,
        )
