"""The metrics of the sharding controller. Labels are names of configured shards and words of closed sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from agent_scheduler.telemetry.process import ProcessMetrics
from agent_scheduler.telemetry.series import exponential

#: From a change of one pod to a million nodes from scratch.
_PLAN_SECONDS = exponential(0.0001, 2, 18)

#: What becomes of a write: see `docs/metrics.md`.
WRITES = ("created", "updated", "deleted", "conflict", "failed", "too_large")


class PlanCounts(Protocol):
    """What is read of a plan: see `engine.shards.plan`."""

    @property
    def counts(self) -> Mapping[str, int]: ...
    @property
    def short(self) -> Mapping[str, int]: ...
    @property
    def unassigned(self) -> Mapping[str, str]: ...


class ShardingMetrics(ProcessMetrics):
    """Owner of every family of the process. An attribute is named as its metric, without prefix."""

    def __init__(self, *, version: str) -> None:
        super().__init__(version=version)
        make = self.families
        self.sharding_plan_duration_seconds = make.histogram(
            "agent_scheduler_sharding_plan_duration_seconds",
            "Duration of deciding which node is in which shard.",
            bounds=_PLAN_SECONDS,
        )
        self.sharding_nodes = make.gauge(
            "agent_scheduler_sharding_nodes", "Nodes that a shard is to have, by the last plan.", "shard"
        )
        self.sharding_nodes_short = make.gauge(
            "agent_scheduler_sharding_nodes_short", "Nodes that a shard lacks of its minimum.", "shard"
        )
        self.sharding_nodes_unassigned = make.gauge(
            "agent_scheduler_sharding_nodes_unassigned", "Nodes that no shard is to have, by the last plan."
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
        )

    def read_plan(self, plan: Callable[[], PlanCounts | None], *, foreign: Callable[[], int]) -> None:
        """From now on the gauges are what these say at each scrape; without a plan there is nothing to say."""

        def counts() -> Mapping[str, int]:
            made = plan()
            return {} if made is None else made.counts

        def short() -> Mapping[str, int]:
            made = plan()
            return {} if made is None else made.short

        def unassigned() -> Mapping[str, int]:
            made = plan()
            return {} if made is None else {"": len(made.unassigned)}

        self.sharding_nodes.read_from(counts)
        self.sharding_nodes_short.read_from(short)
        self.sharding_nodes_unassigned.read_from(unassigned)
        self.sharding_foreign_shards.read_from(lambda: {"": foreign()})
