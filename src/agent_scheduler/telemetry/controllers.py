"""The metrics of a process of controllers.

Labels are names of configured shards, queues and controllers, and values of closed sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from agent_scheduler.objects.batch import PHASES
from agent_scheduler.telemetry.process import ProcessMetrics
from agent_scheduler.telemetry.series import exponential

#: From a change of one pod to a complete plan for a million nodes.
_PLAN_SECONDS = exponential(0.0001, 2, 18)

#: The results of a write: see `docs/metrics.md`.
WRITES = ("created", "updated", "deleted", "conflict", "failed", "too_large")


def _in_phase(phase: str, process: Any) -> Mapping[str, float]:
    """Return the number of groups in a phase by queue."""
    return {queue: counts.get(phase, 0) for queue, counts in process.queue_counts.items()}


class ControllersMetrics(ProcessMetrics):
    """Owns every family of the process. An attribute has the name of its metric without prefix.

    `read` of a family receives the process (`process.controllers.ControllersProcess`) at each scrape.
    """

    def __init__(self, *, version: str) -> None:
        super().__init__(version=version)
        self._sharding()
        self._reconciling()

    def _reconciling(self) -> None:
        make = self.families
        self.reconciles_total = make.counter(
            "agent_scheduler_reconciles_total",
            "Reconciliations of an object: done, or again because a write is still missing.",
            "controller",
            "result",
        )
        self.reconciles_waiting = make.gauge(
            "agent_scheduler_reconciles_waiting",
            "Objects that are being reconciled or wait for it.",
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
            "agent_scheduler_sharding_plan_duration_seconds", "Duration of planning the shards.", bounds=_PLAN_SECONDS
        )
        self.sharding_nodes = make.gauge(
            "agent_scheduler_sharding_nodes",
            "Nodes of a shard in the last plan.",
            "shard",
            read=lambda of: of.sharding.plan.counts if of.sharding and of.sharding.plan else {},
        )
        self.sharding_nodes_short = make.gauge(
            "agent_scheduler_sharding_nodes_short",
            "Nodes that a shard lacks for its minimum.",
            "shard",
            read=lambda of: of.sharding.plan.short if of.sharding and of.sharding.plan else {},
        )
        self.sharding_nodes_unassigned = make.gauge(
            "agent_scheduler_sharding_nodes_unassigned",
            "Nodes without a shard in the last plan.",
            read=lambda of: len(of.sharding.plan.unassigned) if of.sharding and of.sharding.plan else {},
        )
        self.sharding_moves_total = make.counter(
            "agent_scheduler_sharding_moves_total",
            "Nodes that writes have added to a shard or removed from it.",
            "shard",
            "change",
        )
        self.sharding_writes_total = make.counter(
            "agent_scheduler_sharding_writes_total", "Writes of a NodeShard, by result.", "result"
        )
        for result in WRITES:
            self.sharding_writes_total.labels(result)
        self.sharding_foreign_shards = make.gauge(
            "agent_scheduler_sharding_foreign_shards",
            "NodeShards with the name of a configured shard that another controller owns.",
            read=lambda of: of.sharding.reports.foreign_count if of.sharding else {},
        )
