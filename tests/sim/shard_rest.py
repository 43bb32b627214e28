"""Checks shared and planned shards after the last fault: L11 and L12 of docs/reliability.md."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from agent_scheduler.controllers.sharding.configuration import without
from agent_scheduler.controllers.sharding.watching import pod_reader, read_node
from agent_scheduler.engine.shards.node_columns import node_facts
from agent_scheduler.engine.shards.planning import Planner
from agent_scheduler.engine.shards.settings import PlanSettings

from .api import NODES, PODS
from .kinds import World
from .shard_load import FENCE, PEER
from .shard_map import PlanMap, ShardMap, View, same

#: Seconds in which hand-overs end: a lease expires (15), its fence ends, and twice the longest backoff passes.
_HANDED_OVER_WITHIN = 15.0 + FENCE + 2 * 10.0 + 15.0
#: Seconds for which the owners must not change: a scheduler that has returned waits for its own former lease (15 s),
#: and its shard records meanwhile what it used then.
_CALM = 20.0
Owners = dict[str, str]


async def until_handed_over(world: World, shards: ShardMap) -> Owners | None:
    """Return node -> the shard that uses it in the end; None if that takes too long."""
    deadline = world.loop.time() + _HANDED_OVER_WITHIN
    calm_since, owners = world.loop.time(), _owners(_living(shards))
    while True:
        now, found, problems = world.loop.time(), _owners(_living(shards)), list(unsettled(shards))
        if problems or _moved(world, found, owners):
            calm_since, owners = now, found
        elif now >= calm_since + _CALM:
            break
        if now >= deadline + (0.0 if problems else _CALM):
            for problem in problems[:3] or ["nodes still change hands"]:
                world.safety.violated("L11", f"after {_HANDED_OVER_WITHIN:g} s {problem}")
            return None
        await asyncio.sleep(1.0)
    world.safety.look("L11")
    living = _living(shards)
    if any(len(_desiring(living, node)) > 1 for each in living for node in each.desired):
        world.states.reached("overlap settled")
    return owners


def check_still(world: World, shards: ShardMap, owners: Owners) -> None:
    """Check that the owners have not changed since."""
    if changed := _moved(world, _owners(_living(shards)), owners):
        world.safety.violated("L11", f"{sorted(changed)} changed hands in a cluster at rest")


def _moved(world: World, now: Owners, before: Owners) -> set[str]:
    moved = {node for node in now.keys() | before.keys() if now.get(node) != before.get(node)}
    # An autoscaler adds and removes nodes.
    return moved if world.gates is None else moved & now.keys() & before.keys()


def _living(shards: ShardMap) -> list[View]:
    lasting = shards.lasting(_CALM)
    living = [each for each in shards.all() if shards.lives(each.name)]
    return living if lasting is None else [each.of(lasting) for each in living]


def _desiring(living: list[View], node: str) -> list[str]:
    return [each.name for each in living if node in each.desired]


def _owners(living: list[View]) -> Owners:
    return {node: each.name for each in living for node in each.in_use}


def unsettled(shards: ShardMap) -> Iterator[str]:
    """Yield what is still being handed over."""
    living = _living(shards)
    for each in living:
        if each.name != PEER and not shards.works(each.name):
            yield f"no process works for {each.name}"
        if more := each.in_use - each.desired:
            yield f"{each.name} still uses {sorted(more)}"
        if not each.updated and each.desired:
            yield f"{each.name} says nothing"
        if each.to_add != each.desired - each.in_use or each.to_remove != each.in_use - each.desired:
            yield f"the status of {each.name} disagrees with itself: {each}"
        for node in sorted(each.desired):
            dead = (other for other in shards.all() if other not in living)
            if each.name == PEER and any(node in other.in_use for other in dead):
                # It does not read leases, and waits forever for dead schedulers.
                continue
            using = [other.name for other in living if node in other.in_use]
            if len(using) != 1:
                yield f"{node} is desired by {_desiring(living, node)} and used by {using}"


#: Seconds until all shards are as planned: a lease expires (15), the longest period between two syncs, the scheduler of
#: a shard that is to be deleted counts as dead (its lease and its fence), and hand-overs and waiting pods after that.
_DIVIDED_WITHIN = 15.0 + 60.0 + 15.0 + FENCE + 150.0
#: Seconds for which the plan must hold: longer than the life of pods that end by themselves.
_PLANNED_CALM = 12.0


async def until_divided(world: World, plans: PlanMap, find: Callable[[], list[str]]) -> bool:
    """Return whether all shards are as planned in time. What `find` returns may still change the plan."""
    deadline = world.loop.time() + _DIVIDED_WITHIN
    calm_since, writes = world.loop.time(), -1
    while True:
        now = world.loop.time()
        problems = list(_unplanned(world, plans))
        others = [] if problems else find()
        if problems or others or writes != world.plan_writes:
            calm_since, writes = now, world.plan_writes
        if now >= calm_since + _PLANNED_CALM:
            world.safety.look("L12")
            return True
        if now >= deadline and not problems and others:
            # Other checks report this.
            return True
        if now >= deadline + (0.0 if problems else _PLANNED_CALM):
            if world.gates is not None and not problems:
                # For gangs that do not fit, nodes are added again and again.
                return True
            for problem in problems[:3] or ["the plan is still being changed"]:
                world.safety.violated("L12", f"after {_DIVIDED_WITHIN:g} s {problem}")
            return False
        await asyncio.sleep(2.0)


def check_planned(world: World, plans: PlanMap, writes: int) -> None:
    """Check that nothing was written since."""
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
    """Return a new planner with the current objects of the API."""
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
