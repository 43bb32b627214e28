"""A plan made anew from plain dicts, by the rules that `engine.shards.planning` states, a node at a time.

Nothing is kept from plan to plan, and nothing is in columns, so nothing here can go wrong in the way in which an
incremental plan can.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from agent_scheduler.engine.shards.node_columns import NodeFacts
from agent_scheduler.engine.shards.settings import (
    AllocationRateArgs,
    NodeLimitArgs,
    PlanSettings,
    ShardSettings,
    WarmupArgs,
)


def exact(number: float) -> Fraction:
    """What a configuration means by 0.1."""
    return Fraction(repr(number))


@dataclass
class PlainPlanner:
    settings: PlanSettings
    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    #: UID -> node and requests.
    pods: dict[str, tuple[str, Mapping[str, int]]] = field(default_factory=dict)
    specs: dict[str, frozenset[str]] = field(default_factory=dict)
    foreign: dict[str, frozenset[str]] = field(default_factory=dict)
    #: How many nodes each shard lacked of its minimum in the last plan.
    short: dict[str, int] = field(default_factory=dict)

    def rate(self, node: NodeFacts, resource: str) -> Fraction | None:
        offered = node.allocatable.get(resource, 0)
        if not offered:
            return None
        used = sum(requests.get(resource, 0) for at, requests in self.pods.values() if at == node.name)
        return Fraction(math.floor(min(Fraction(used, offered), Fraction(1)) * 100 + Fraction(1, 2)), 100)

    def owner(self, name: str) -> str | None:
        """The shard that a node is in."""
        configured = [shard for shard in self.settings.names if name in self.specs.get(shard, ())]
        others = sorted(shard for shard, nodes in self.specs.items() if name in nodes)
        return (configured + others or [None])[0]

    def may_be_given(self, node: NodeFacts) -> bool:
        return not self.is_foreign(node.name) and self._treatments(node) <= {"include"}

    def is_foreign(self, name: str) -> bool:
        return any(name in nodes for nodes in self.foreign.values())

    def _treatments(self, node: NodeFacts) -> set[str]:
        settings = self.settings
        said = {settings.cordoned_nodes} if node.cordoned else set()
        return said | (set() if node.ready else {settings.not_ready_nodes})

    def stays(self, node: NodeFacts) -> bool:
        treatments = self._treatments(node)
        return (
            "keep" in treatments
            and "exclude" not in treatments
            and not self.is_foreign(node.name)
            and self.owner(node.name) in self.settings.names
        )

    def passes(self, node: NodeFacts, shard: ShardSettings) -> bool:
        margin = exact(self.settings.stickiness.margin) if self.owner(node.name) == shard.name else Fraction(0)
        for policy in shard.policies:
            if isinstance(policy.arguments, AllocationRateArgs):
                rates = {each: self.rate(node, each) for each in policy.arguments.ranges}
                judged = {each: found for each, found in rates.items() if found is not None}
                if not judged:
                    return False
                for resource, found in judged.items():
                    bounds = policy.arguments.ranges[resource]
                    if not exact(bounds.min) - margin <= found <= exact(bounds.max) + margin:
                        return False
        return True

    def score(self, node: NodeFacts, shard: ShardSettings) -> Fraction:
        """In whole millionths, with what being in the shard counts."""
        total, weights = Fraction(0), Fraction(0)
        for policy in shard.policies:
            match policy.arguments:
                case AllocationRateArgs() as args:
                    positions = []
                    for resource, bounds in args.ranges.items():
                        found = self.rate(node, resource)
                        if found is not None:
                            low, high = exact(bounds.min), exact(bounds.max)
                            where = Fraction(1) if low == high else (found - low) / (high - low)
                            positions.append(min(max(where, Fraction(0)), Fraction(1)))
                    score = sum(positions, Fraction(0)) / max(1, len(positions))
                case WarmupArgs() as args:
                    score = Fraction(node.labels.get(args.warmup_label) == args.warmup_label_value)
                case _:
                    continue
            total += exact(policy.weight) * score
            weights += exact(policy.weight)
        points = Fraction(round(total / weights * 1_000_000)) if weights else Fraction(0)
        if self.owner(node.name) == shard.name:
            points += round(exact(self.settings.stickiness.gain) * 1_000_000) + Fraction(1, 2)
        return points

    def most(self, shard: ShardSettings) -> int | None:
        there = sum(map(self.may_be_given, self.nodes.values()))
        found = []
        for policy in shard.policies:
            if isinstance(policy.arguments, NodeLimitArgs):
                if policy.arguments.max_nodes:
                    found.append(policy.arguments.max_nodes)
                if policy.arguments.max_percent is not None:
                    found.append(math.ceil(there * exact(policy.arguments.max_percent) / 100))
        return min(found, default=None)

    def minimum(self, shard: ShardSettings) -> int:
        limits = [each.arguments for each in shard.policies if isinstance(each.arguments, NodeLimitArgs)]
        return max((each.min_nodes for each in limits), default=0)

    def least(self, shard: ShardSettings) -> int:
        least, most = self.minimum(shard), self.most(shard)
        return least if most is None else min(least, most)

    def fits(self, node: NodeFacts, taken: list[NodeFacts], shard: ShardSettings) -> bool:
        for policy in shard.policies:
            if isinstance(policy.arguments, NodeLimitArgs):
                for resource, amount in policy.arguments.budget.items():
                    if sum(each.allocatable.get(resource, 0) for each in (*taken, node)) > amount:
                        return False
        return True

    def take(
        self, shard: ShardSettings, candidates: list[NodeFacts], most: int | None, taken: list[NodeFacts]
    ) -> list[NodeFacts]:
        """The first of `candidates` beside those that the shard has taken before."""
        found: list[NodeFacts] = []
        for node in sorted(candidates, key=lambda node: (-self.score(node, shard), node.name)):
            if (most is None or len(found) < most) and self.fits(node, taken + found, shard):
                found.append(node)
        return found

    def plan(self) -> dict[str, list[str]]:
        shards = self.settings.shards
        rest = [node for node in self.nodes.values() if self.may_be_given(node)]
        taken: dict[str, list[NodeFacts]] = {shard.name: [] for shard in shards}
        short = 0
        for place, shard in enumerate(shards):
            least, most = self.least(shard), self.most(shard)
            later = sum(self.least(each) for each in shards[place + 1 :])
            spare = max(len(rest) - short - later, min(least, len(rest) - short))
            candidates = [node for node in rest if self.passes(node, shard)]
            taken[shard.name] = self.take(shard, candidates, spare if most is None else min(spare, most), [])
            rest = [node for node in rest if node not in taken[shard.name]]
            short += max(0, least - len(taken[shard.name]))
        for shard in shards:
            mine = taken[shard.name]
            mine += self.take(shard, rest, max(0, self.least(shard) - len(mine)), mine)
            rest = [node for node in rest if node not in mine]
        for shard in shards:
            if shard.name == self.settings.leftover_shard:
                mine, most = taken[shard.name], self.most(shard)
                mine += self.take(shard, rest, None if most is None else max(0, most - len(mine)), mine)
        lacking = {shard.name: self.minimum(shard) - len(taken[shard.name]) for shard in shards}
        self.short = {name: count for name, count in lacking.items() if count > 0}
        for node in self.nodes.values():
            if self.stays(node):
                taken[self.owner(node.name) or ""].append(node)
        return {name: sorted(node.name for node in nodes) for name, nodes in taken.items()}
