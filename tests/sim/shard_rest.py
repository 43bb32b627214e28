"""What must become true of shared nodes once the faults have ended.

L11 every hand-over ends: of the nodes that the shard of a living scheduler desires it uses those that no other living
    one desires; of those that several desire, one uses each; nobody uses another; the status says so, and nothing of
    that changes any more
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .shard_load import FENCE, PEER
from .shard_map import ShardMap, View

if TYPE_CHECKING:
    from .world import World

#: Seconds in which hand-overs end: a lease runs out (15), its fence ends, and twice the longest backoff is waited.
_HANDED_OVER_WITHIN = 15.0 + FENCE + 2 * 10.0 + 15.0
#: Seconds for which nothing changes hands: a scheduler that has come back waits for its own lease of before (15 s), and
#: its shard says meanwhile what it used then.
_CALM = 20.0

Owners = dict[str, str]


async def until_handed_over(world: World, shards: ShardMap) -> Owners | None:
    """Node -> the shard that uses it in the end; None where that takes too long."""
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
    world.safety.checked["L11"] += 1
    living = _living(shards)
    if any(len(_desiring(living, node)) > 1 for each in living for node in each.desired):
        world.states.reached("overlap settled")
    return owners


def check_still(world: World, shards: ShardMap, owners: Owners) -> None:
    """Nothing has changed since."""
    if changed := _moved(world, _owners(_living(shards)), owners):
        world.safety.violated("L11", f"{sorted(changed)} changed hands in a cluster at rest")


def _moved(world: World, now: Owners, before: Owners) -> set[str]:
    moved = {node for node in now.keys() | before.keys() if now.get(node) != before.get(node)}
    # An autoscaler makes nodes and takes them away.
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
    """What is still being handed over."""
    living = _living(shards)
    for each in living:
        if each.name != PEER and not shards.works(each.name):
            yield f"nobody works for {each.name}"
        if more := each.in_use - each.desired:
            yield f"{each.name} still uses {sorted(more)}"
        if not each.updated and each.desired:
            yield f"{each.name} says nothing"
        if each.to_add != each.desired - each.in_use or each.to_remove != each.in_use - each.desired:
            yield f"the status of {each.name} disagrees with itself: {each}"
        for node in sorted(each.desired):
            if each.name == PEER and any(
                node in other.in_use for other in shards.all() if other not in living
            ):
                # It does not look at leases, and waits for the dead for ever.
                continue
            using = [other.name for other in living if node in other.in_use]
            if len(using) != 1:
                yield f"{node} is desired by {_desiring(living, node)} and used by {using}"
