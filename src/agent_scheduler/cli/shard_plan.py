"""Computes what the sharding controller would do, with its own planner. Nothing is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from agent_scheduler.controllers.sharding.configuration import ShardingSettings, without
from agent_scheduler.controllers.sharding.store import ShardInfo, shard_of
from agent_scheduler.controllers.sharding.watching import set_node, set_pod
from agent_scheduler.controllers.sharding.writes import too_large
from agent_scheduler.engine.shards.plan import ShardPlan
from agent_scheduler.engine.shards.planning import Planner
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.objects.shard import NodeShard
from apimachinery.plural import counted

from .tables import table


class PlannedShards(NamedTuple):
    """The planned shards. `plan` is None if another controller owns every configured shard."""

    settings: ShardingSettings
    shards: dict[str, ShardInfo]
    plan: ShardPlan | None

    @property
    def names(self) -> list[str]:
        """Configured shards in their order, then all others."""
        configured = self.settings.plan.names
        return [*configured, *sorted(self.shards.keys() - set(configured))]

    def planned(self, name: str) -> int | None:
        """Return the planned number of nodes; None for a shard that stays unchanged."""
        shard = self.shards.get(name)
        if shard is not None and not shard.ours:
            return None
        return self.plan.counts.get(name, 0) if self.plan is not None else 0

    def notes(self, name: str) -> str:
        shard, configured = self.shards.get(name), name in self.settings.plan.names
        if shard is not None and not shard.ours:
            return (
                "configured, but owned by another controller: unchanged"
                if configured
                else "owned by another controller: unchanged"
            )
        if not configured:
            return "no longer configured: emptied, then deleted"
        lacking = self.plan.short.get(name, 0) if self.plan is not None else 0
        notes = ["new"] if shard is None else []
        if lacking:
            notes.append(f"{lacking} below its minimum")
        if self.plan is not None and name in self.plan.changed:
            problem = too_large(self.plan.desired[name])
            notes += [f"not written: {problem}"] if problem else []
        return ", ".join(notes)


def outlook(
    settings: ShardingSettings, *, shards: Sequence[NodeShard], nodes: Iterable[NodeInfo], pods: Iterable[PodInfo]
) -> PlannedShards:
    known = {shard.name: shard_of(shard) for shard in shards}
    usable = without(settings.plan, {shard.name for shard in known.values() if not shard.ours})
    if usable is None:
        return PlannedShards(settings, known, None)
    planner = Planner(usable)
    for node in nodes:
        set_node(planner, node)
    for pod in pods:
        set_pod(planner, pod)
    for shard in known.values():
        if shard.ours:
            planner.set_current(shard.name, shard.desired)
        else:
            planner.set_foreign(shard.name, shard.desired)
    return PlannedShards(settings, known, planner.plan())


def text(seen: PlannedShards) -> str:
    """Return the plan as text: counts per shard, each node that would move, and why nodes are in no shard."""
    plan = seen.plan
    rows = []
    for name in seen.names:
        shard, planned = seen.shards.get(name), seen.planned(name)
        change = plan.changes.get(name) if plan is not None else None
        rows.append(
            (
                name,
                len(shard.desired) if shard is not None else "",
                planned,
                f"+{len(change.added)}" if change else "",
                f"-{len(change.removed)}" if change else "",
                seen.notes(name),
            )
        )
    parts = [f"by {seen.settings.source}\n", table(("SHARD", "NOW", "PLANNED", "ADD", "REMOVE", "NOTES"), rows)]
    if plan is None:
        return "\n".join([*parts, "every configured shard is owned by another controller: nothing would be written\n"])
    if plan.moves:
        moves = [(move.node, move.source, move.target, move.why) for move in plan.moves]
        parts.append(table(("NODE", "FROM", "TO", "WHY"), moves))
    else:
        parts.append("no node would move\n")
    if plan.unassigned:
        counts = sorted(Counter(plan.unassigned.values()).items())
        notes = "".join(f"  {number} {why}\n" for why, number in counts)
        parts.append(f"{counted(len(plan.unassigned), 'node')} would be in no shard:\n{notes}")
    return "\n".join(parts)


def plain(seen: PlannedShards) -> dict[str, Any]:
    """Return the plan for JSON and YAML. `planned` is null for a shard that stays unchanged."""
    plan = seen.plan
    moves = plan.moves if plan is not None else ()
    return {
        "source": seen.settings.source,
        "shards": [
            {
                "name": name,
                "now": len(shard.desired) if (shard := seen.shards.get(name)) is not None else None,
                "planned": seen.planned(name),
                "notes": seen.notes(name),
            }
            for name in seen.names
        ],
        "moves": [{"node": move.node, "from": move.source, "to": move.target, "why": move.why} for move in moves],
        "unassigned": dict(plan.unassigned) if plan is not None else {},
    }
