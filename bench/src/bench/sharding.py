"""Measures what planning shards costs, from scratch and after a change: only the planner, without API.

Every node has one pod of a random size. There are four shards: by CPU and warmth with a limit, by memory with a
percentage, by CPU with a limit, and the rest; once also with a budget of capacity. Run it with `python -m
bench.sharding`. Every figure is CPU time of this process; for a change the median of many, and the maximum. Garbage
collection is set up as in `agent-scheduler controllers`: the initial objects are frozen.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median

from agent_scheduler.engine.shards.node_columns import NodeFacts
from agent_scheduler.engine.shards.planning import Planner
from agent_scheduler.engine.shards.settings import (
    AllocationRateArgs,
    NodeLimitArgs,
    PlanSettings,
    PolicyArgs,
    PolicySettings,
    Range,
    ShardSettings,
    WarmupArgs,
)
from agent_scheduler.telemetry.pauses import GcPolicy
from agent_scheduler.telemetry.process import ProcessMetrics
from bench.tables import table

GIB = 2**30
CORES = 16
#: Requests of a pod, by hundredths of a node's CPU; of memory half as much.
REQUESTS = [{"cpu": CORES * 10 * part, "memory": 64 * GIB * part // 200} for part in range(101)]
WARM = {"node.volcano.sh/warmup": "true"}


def settings(nodes: int, *, budget: bool) -> PlanSettings:
    limits = NodeLimitArgs(
        min_nodes=2, max_nodes=nodes // 4, max_capacity={"cpu": nodes // 5 * CORES} if budget else {}
    )

    def shard(name: str, *policies: PolicyArgs) -> ShardSettings:
        return ShardSettings(name=name, policies=tuple(PolicySettings(arguments=each) for each in policies))

    return PlanSettings(
        shards=(
            shard("agents", AllocationRateArgs(min_cpu_util=0.5), WarmupArgs(), limits),
            shard(
                "memory",
                AllocationRateArgs(resources={"memory": Range(min=0.1, max=0.35)}),
                NodeLimitArgs(max_percent=30),
            ),
            shard("batch", AllocationRateArgs(max_cpu_util=0.6), NodeLimitArgs(max_nodes=nodes // 5)),
            shard("rest"),
        ),
        leftover="rest",
    )


class ShardingCluster:
    """A planner with nodes in random order, and their changes."""

    def __init__(self, count: int, *, budget: bool) -> None:
        self.chance = random.Random(1)
        self.nodes = [
            NodeFacts(
                name=f"node-{index:07}",
                labels=WARM if index % 3 == 0 else {},
                allocatable={"cpu": CORES * 1000, "memory": 64 * GIB, "pods": 110},
            )
            for index in range(count)
        ]
        self.chance.shuffle(self.nodes)
        self.pods = [f"uid-{index:07}" for index in range(count)]
        self.planner = Planner(settings(count, budget=budget))

    def tell_nodes(self) -> None:
        for node in self.nodes:
            self.planner.set_node(node)

    def tell_pods(self) -> None:
        for uid, node in zip(self.pods, self.nodes, strict=True):
            self.planner.set_pod(uid, node.name, self.chance.choice(REQUESTS))

    def carry_out(self) -> None:
        plan = self.planner.plan()
        for name in plan.changed:
            self.planner.set_current(name, plan.desired[name])

    def change_pods(self, count: int) -> None:
        for _ in range(count):
            at = self.chance.randrange(len(self.nodes))
            self.planner.set_pod(self.pods[at], self.nodes[at].name, self.chance.choice(REQUESTS))

    def plan(self) -> int:
        """Plan, and return how many nodes join and leave shards."""
        return sum(len(change.added) + len(change.removed) for change in self.planner.plan().changes.values())


def seconds(action: Callable[[], object]) -> float:
    started = time.process_time()
    action()
    return time.process_time() - started


def from_scratch(cluster: ShardingCluster) -> Iterator[tuple[str, float]]:
    yield "all nodes received", seconds(cluster.tell_nodes)
    yield "all pods received", seconds(cluster.tell_pods)
    yield "plan from scratch", seconds(cluster.planner.plan)
    yield "specs of the plan received", seconds(cluster.carry_out)
    yield "plan after that", seconds(cluster.planner.plan)


def changes(cluster: ShardingCluster, pods: int, times: int) -> list[float]:
    """Return the milliseconds of each change of this number of pods on different nodes, up to the writes."""
    found = []
    for _ in range(times):
        started = time.process_time()
        cluster.change_pods(pods)
        cluster.plan()
        found.append((time.process_time() - started) * 1e3)
        cluster.carry_out()
        cluster.planner.plan()
    return found


def report(nodes: int, times: int) -> dict[str, object]:
    figures: dict[str, object] = {}
    for budget in (False, True):
        kind = f"{nodes:,} nodes" + (", a budget" if budget else "")
        print(kind, file=sys.stderr)
        cluster = ShardingCluster(nodes, budget=budget)
        collector = GcPolicy(ProcessMetrics(version="bench"))
        collector.start()
        for name, took in from_scratch(cluster):
            figures[f"{kind}: {name} [s]"] = round(took, 3)
        collector.freeze()
        for pods in (1, 100):
            found = changes(cluster, pods, times)
            figures[f"{kind}: {pods} pods changed, median and most [ms]"] = f"{median(found):.2f}, {max(found):.2f}"
        collector.stop()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[5000, 1_000_000], help="sizes of clusters")
    parser.add_argument("--changes", type=int, default=20, help="changes that a figure is the median of")
    args = parser.parse_args()
    figures: dict[str, object] = {}
    for nodes in args.nodes:
        figures |= report(nodes, args.changes)
    print(table(("CPU time", "figure"), figures.items()))


if __name__ == "__main__":
    main()
