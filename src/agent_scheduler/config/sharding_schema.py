"""The shape of `sharding.yaml`: Volcano's keys, those that it has from older days, and ours."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from agent_scheduler.config.values import Duration, Section
from agent_scheduler.engine.shards.settings import Count, Share, Stickiness, Treatment

#: As the API server wants the name of a NodeShard (RFC 1123 subdomain).
ShardName = Annotated[
    str,
    Meta(
        pattern=r"^(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        extra={"allowed": "an object's name: lower case letters, digits, - and ."},
    ),
]


class PolicyEntry(Section, frozen=True, kw_only=True):
    """`config.sharding` checks the arguments against those of the policy of this name."""

    name: str
    #: Not given: 1. 0 is 0, where Volcano takes it for 1.
    weight: Annotated[float, Meta(ge=0, le=1_000_000)] | None = None
    arguments: dict[str, Any] = field(default_factory=dict)


class SchedulerEntry(Section, frozen=True, kw_only=True):
    """One shard. All below `policies` is deprecated, and makes policies where there are none."""

    name: ShardName
    type: str = ""
    policies: tuple[PolicyEntry, ...] = ()
    #: Of allocation-rate.
    arguments: dict[str, Any] = field(default_factory=dict)
    cpu_utilization_min: Share | None = None
    cpu_utilization_max: Share | None = None
    prefer_warmup_nodes: bool = False
    min_nodes: Count = 0
    max_nodes: Count = 0


class ShardingFile(Section, frozen=True, kw_only=True):
    """The first three are Volcano's. The rest is of `engine.shards.settings.PlanSettings`."""

    scheduler_configs: tuple[SchedulerEntry, ...]
    shard_sync_period: Duration | None = None
    enable_node_event_trigger: bool | None = None
    leftover: str = ""
    stickiness: Stickiness = Stickiness()
    cordoned_nodes: Treatment = "exclude"
    not_ready_nodes: Treatment = "exclude"
