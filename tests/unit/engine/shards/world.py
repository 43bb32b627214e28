"""Short words for what plans are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent_scheduler.engine.shards.node_columns import NodeFacts
from agent_scheduler.engine.shards.plan import ShardPlan
from agent_scheduler.engine.shards.planning import Planner
from agent_scheduler.engine.shards.settings import (
    AllocationRateArgs,
    NodeLimitArgs,
    PlanSettings,
    PolicyArgs,
    PolicySettings,
    Range,
    ShardSettings,
    Stickiness,
    WarmupArgs,
)

GIB = 1 << 30
WARM = {"node.volcano.sh/warmup": "true"}


def rate(low: float | None = None, high: float | None = None, **resources: tuple[float, float]) -> PolicyArgs:
    """A range of CPU, and of others: `gpu=(0, 0.5)`."""
    ranges = {name: Range(min=least, max=most) for name, (least, most) in resources.items()}
    return AllocationRateArgs(min_cpu_util=low, max_cpu_util=high, resources=ranges)


def warm() -> PolicyArgs:
    return WarmupArgs()


def limit(
    least: int = 0, most: int = 0, *, percent: float | None = None, capacity: Mapping[str, str] | None = None
) -> PolicyArgs:
    return NodeLimitArgs(min_nodes=least, max_nodes=most, max_percent=percent, max_capacity=dict(capacity or {}))


def weighted(weight: float, arguments: PolicyArgs) -> PolicySettings:
    return PolicySettings(weight=weight, arguments=arguments)


def shard(name: str, *policies: PolicyArgs | PolicySettings) -> ShardSettings:
    return ShardSettings(
        name=name,
        policies=tuple(
            each if isinstance(each, PolicySettings) else PolicySettings(arguments=each) for each in policies
        ),
    )


def settings(*shards: ShardSettings, leftover: str = "none", gain: float = 0.1, margin: float = 0.05) -> PlanSettings:
    return PlanSettings(shards=shards, leftover=leftover, stickiness=Stickiness(gain=gain, margin=margin))


class World:
    """A planner, and nodes of 100 cores each, on which one pod asks for all that is used."""

    def __init__(self, made: PlanSettings) -> None:
        self.planner = Planner(made)

    def node(
        self,
        name: str,
        used: int = 0,
        *,
        labels: Mapping[str, str] | None = None,
        cores: int = 100,
        cordoned: bool = False,
        ready: bool = True,
        **more: tuple[int, int],
    ) -> None:
        """`used` of the node's cores are requested. `more`: of other resources what is used and what there is."""
        allocatable = {"cpu": cores * 1000} | {resource: offered for resource, (_, offered) in more.items()}
        self.planner.set_node(
            NodeFacts(name=name, labels=labels or {}, allocatable=allocatable, cordoned=cordoned, ready=ready)
        )
        self.use(name, used, **{resource: taken for resource, (taken, _) in more.items()})

    def nodes(self, **used: int) -> None:
        """`n1=40`: a node of which 40 of 100 cores are used."""
        for name, cores in used.items():
            self.node(name, cores)

    def use(self, name: str, cores: int, **more: int) -> None:
        self.planner.set_pod(f"pod on {name}", name, {"cpu": cores * 1000} | more)

    def plan(self) -> ShardPlan:
        return self.planner.plan()

    def desired(self) -> dict[str, list[str]]:
        return {name: list(nodes) for name, nodes in self.plan().desired.items()}

    def carry_out(self) -> ShardPlan:
        """Have the specs say what the plan does."""
        plan = self.plan()
        for name, nodes in plan.desired.items():
            self.planner.set_current(name, nodes)
        return plan

    def are_in(self, **shards: Iterable[str]) -> None:
        """What the specs say: `a=["n1"]`."""
        for name, nodes in shards.items():
            self.planner.set_current(name, nodes)
