"""What must become true of planned shards once the faults have ended.

L12 every node is in the shard that it has in a plan made of the API's own objects by the configuration in effect, which
    is what the ConfigMap says if that can be used; shards that are not configured, and that nobody uses, are gone;
    nothing more is written
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from agent_scheduler.controllers.sharding.configuration import without
from agent_scheduler.controllers.sharding.watching import pod_reader, read_node
from agent_scheduler.engine.shards.node_columns import node_facts
from agent_scheduler.engine.shards.planning import Planner
from agent_scheduler.engine.shards.settings import PlanSettings

from .plan_map import PlanMap, same
from .shard_load import FENCE

if TYPE_CHECKING:
    from .world import World

PODS, NODES = ("", "pods"), ("", "nodes")
#: Seconds in which all is as planned: a lease runs out (15), the longest period between two syncs, the scheduler of a
#: shard that is to go is found dead (its lease and its fence), and what hand-overs and waiting pods take after that.
_DIVIDED_WITHIN = 15.0 + 60.0 + 15.0 + FENCE + 150.0
#: Seconds for which all has to be so: longer than pods live that end by themselves.
_CALM = 12.0


async def until_divided(world: World, plans: PlanMap, find: Callable[[], list[str]]) -> bool:
    """Whether all is as planned, soon enough. What `find` finds may still change the plan."""
    deadline = world.loop.time() + _DIVIDED_WITHIN
    calm_since, writes = world.loop.time(), -1
    while True:
        now = world.loop.time()
        problems = list(_unplanned(world, plans))
        others = [] if problems else find()
        if problems or others or writes != world.plan_writes:
            calm_since, writes = now, world.plan_writes
        if now >= calm_since + _CALM:
            world.safety.checked["L12"] += 1
            return True
        if now >= deadline and not problems and others:
            # That is for others to judge.
            return True
        if now >= deadline + (0.0 if problems else _CALM):
            if world.gates is not None and not problems:
                # For gangs that do not fit nodes come again and again.
                return True
            for problem in problems[:3] or ["the plan is still being changed"]:
                world.safety.violated("L12", f"after {_DIVIDED_WITHIN:g} s {problem}")
            return False
        await asyncio.sleep(2.0)


def check_planned(world: World, plans: PlanMap, writes: int) -> None:
    """Nothing was written since."""
    for problem in _unplanned(world, plans):
        world.safety.violated("L12", f"in a cluster at rest {problem}")
    if world.plan_writes != writes:
        world.safety.violated("L12", f"{world.plan_writes - writes} shards were written in a cluster at rest")


def _unplanned(world: World, plans: PlanMap) -> Iterator[str]:
    leader = plans.leader()
    if leader is None or leader.program is None or leader.program.sharding is None:
        yield "no controller leads"
        return
    said, settings = plans.history[-1], leader.in_effect
    if said.settings is not None and (settings is None or not same(settings, said.settings)):
        yield f"{leader.identity} does not go by what the ConfigMap says, but by {settings}"
        return
    if settings is None:
        return
    configured = settings.plan.names
    foreign = {each.name for each in plans.shards.all()} - {each.name for each in plans.shards.managed()}
    for name in configured:
        if plans.shards.get(name) is None:
            yield f"{name} is configured and is not there"
    for each in plans.shards.managed():
        if each.name not in configured:
            yield f"{each.name} is not configured and is there: {each}"
    usable = without(settings.plan, foreign.intersection(configured))
    if usable is not None:
        plan = planner_of(world, plans, usable).plan()
        for name in sorted(plan.changed):
            yield f"the plan changes {plan.changes[name]}"


def planner_of(world: World, plans: PlanMap, settings: PlanSettings) -> Planner:
    """A new one, which knows what the API has."""
    planner = Planner(settings)
    for record in world.store.tables[NODES].scan(""):
        planner.set_node(node_facts(read_node(record.data)))
    read_pod = pod_reader()
    for record in world.store.tables[PODS].scan(""):
        pod = read_pod(record.data)
        if pod.node_name and not pod.finished:
            planner.set_pod(pod.uid, pod.node_name, pod.requests)
    managed = {each.name for each in plans.shards.managed()}
    for each in plans.shards.all():
        if each.name in managed:
            planner.set_current(each.name, each.desired)
        else:
            planner.set_foreign(each.name, each.desired)
    return planner
