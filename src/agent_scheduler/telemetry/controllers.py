"""The metrics of a process of controllers.

Labels are names of configured shards, queues and controllers, and words of closed sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from agent_scheduler.objects.batch import PHASES
from agent_scheduler.telemetry.process import ProcessMetrics
from agent_scheduler.telemetry.series import exponential

#: From a change of one pod to a million nodes from scratch.
_PLAN_SECONDS = exponential(0.0001, 2, 18)

#: What becomes of a write: see `docs/metrics.md`.
WRITES = ("created", "updated", "deleted", "conflict", "failed", "too_large")


def _in_phase(phase: str, process: Any) -> Mapping[str, float]:
    """How many groups each queue has in a phase."""
    return {queue: counts.get(phase, 0) for queue, counts in process.queue_counts.items()}


class ControllersMetrics(ProcessMetrics):
    """Owner of every family of the process. An attribute is named as its metric, without prefix.

    `read` of a family is given the process (`process.controllers.ControllersProcess`), at each scrape.
    """

    def __init__(self, *, version: str) -> None:
        super().__init__(version=version)
        self._sharding()
        self._reconciling()

    def _reconciling(self) -> None:
        make = self.families
        self.reconciles_total = make.counter(
            "agent_scheduler_reconciles_total",
            "Turns at an object of a controller: done, or again because something is still to be written.",
            "controller",
            "result",
        )
        self.reconciles_waiting = make.gauge(
            "agent_scheduler_reconciles_waiting",
            "Objects that wait for a turn of a controller, or have it.",
            "controller",
            read=lambda of: of.reconciles_waiting,
        )
        for phase in PHASES:
            make.gauge(
                f"volcano_queue_pod_group_{phase.lower()}_count",
                f"PodGroups of a queue in phase {phase}.",
                "queue_name",
                read=partial(_in_phase, phase),
            )

    def _sharding(self) -> None:
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
            read=lambda of: of.sharding.plan.counts if of.sharding and of.sharding.plan else {},
        )
        self.sharding_nodes_short = make.gauge(
            "agent_scheduler_sharding_nodes_short",
            "Nodes that a shard lacks of its minimum.",
            "shard",
            read=lambda of: of.sharding.plan.short if of.sharding and of.sharding.plan else {},
        )
        self.sharding_nodes_unassigned = make.gauge(
            "agent_scheduler_sharding_nodes_unassigned",
            "Nodes that no shard is to have, by the last plan.",
            read=lambda of: len(of.sharding.plan.unassigned) if of.sharding and of.sharding.plan else {},
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
            read=lambda of: of.sharding.reports.foreign_count if of.sharding else {},
        )
