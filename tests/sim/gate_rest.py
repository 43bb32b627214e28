"""Checks gates and the autoscaler after the last fault: L17 of docs/reliability.md."""

from __future__ import annotations

import asyncio
from collections import Counter

from . import gang_reading as read
from .api import Json, condition_of, name_of
from .gang_load import GATE
from .gate_cluster import GateCluster, asks, gates, is_held, is_ours
from .kinds import World
from .queue_rest import Waiting
from .rules import Rules, cluster_of, readable, refusal

#: Seconds for all consecutive steps: a rejected removal is sent again after a minute at most, a pod is tried and
#: reports the result, and a node is added after up to 10 s; then the pods after it in its queue, and members above a
#: minimum.
SERVED_WITHIN = 180.0


class _Served:
    """The waiting pods at a moment, from the store, and what they wait for."""

    def __init__(self, world: World, cluster: GateCluster, by: Rules) -> None:
        assert world.gangs is not None, "it has queues"
        self._by = by
        self._is_off = world.shape.gates is not None and world.shape.gates.off
        self._cluster = cluster
        self._standing = Waiting(world, world.gangs, by)
        self._is_reserved = cluster.has_room_reserved
        self._enough = {group.name: group.most - cluster.size(group.name) for group in cluster.groups}
        self._templates = {group.name: readable(group.node(0)) for group in cluster.groups}

    # -- gates

    def kept(self) -> list[str]:
        """Return pods that have their gate although their queue has room."""
        standing, found = self._standing, []
        if self._is_off:
            held = [pod for pod in standing.pods if asks(pod) and GATE in gates(pod)]
            return [f"{name_of(pod)} is behind its gate" for pod in held]
        for name, group in standing.groups.items():
            members = standing.members.get(name, [])
            held = [pod for pod in members if is_held(pod)]
            if held and self._gang_has_room(group, members, held):
                queue = standing.queue_of(held[0]) or "no queue"
                found.append(f"{len(held)} of {name} are behind their gate, and {queue} has room")
        for pod in standing.pods:
            if is_held(pod) and not read.gang_of(pod) and standing.leaves_room([pod], 1, ""):
                queue = standing.queue_of(pod) or "no queue"
                found.append(f"{name_of(pod)} is behind its gate, and {queue} has room")
        return found

    def _gang_has_room(self, group: Json, members: list[Json], held: list[Json]) -> bool:
        standing, least = self._standing, read.minimum(group)
        holding = [pod for pod in members if read.is_ready(pod) or self._is_reserved(pod)]
        loose = [pod for pod in members if read.waits(pod) and not gates(pod) and not self._is_reserved(pod)]
        if least.lacks([*holding, *held, *loose]):
            return False
        pending = [*held, *loose]
        return standing.leaves_room(pending, read.needed(least, len(holding), pending), read.gang_of(held[0]))

    # -- nodes

    def unserved(self) -> list[str]:
        """Return admitted pods and gangs that more nodes would help, and whose queue has room for them."""
        standing, found = self._standing, []
        for name, group in standing.groups.items():
            pending = [pod for pod in standing.members.get(name, []) if _is_loose(pod)]
            ready = [pod for pod in standing.members.get(name, []) if read.is_ready(pod)]
            least = read.minimum(group)
            if not pending or least.lacks([*pending, *ready]) or not standing.is_let_in(name, group):
                continue
            if any(map(standing.fits_outside, pending)):
                # The cluster has room on the nodes of other shards (docs/decisions/0043).
                continue
            if any(map(self._cluster.gave_back, pending)) or standing.is_stopped(pending, group):
                # They cause no node, and use one that is added; or no node would help.
                continue
            needed = read.needed(least, len(ready), pending)
            # Otherwise the autoscaler has not chosen nodes as a scheduler that places one member after another does.
            if self._helps(pending, needed, name) and not self._cluster.packs(pending):
                found.append(f"{needed} of {name} fit on nodes to come")
        for pod in standing.pods:
            if not _is_loose(pod) or read.gang_of(pod) or standing.is_stopped([pod]):
                continue
            if self._cluster.gave_back(pod) or standing.fits_outside(pod):
                continue
            if self._helps([pod], 1, ""):
                found.append(f"{name_of(pod)} fits on a node to come")
        return found

    def _helps(self, pending: list[Json], needed: int, name: str) -> bool:
        """Return whether enough nodes may be added that each of these pods has one to itself."""
        standing = self._standing
        # If pods fit into their queue only one after another, the first ones must have nodes
        # (docs/decisions/0032), or wait until their full NodeShard has one.
        wanting = [pod for pod in standing.pods if _is_loose(pod) and _waits_with_room(pod)]
        first = [pod for pod in wanting if not self._is_reserved(pod)]
        if not standing.has_room(pending, needed, beside=first) or not standing.leaves_room(pending, needed, name):
            return False
        spare: Counter[str] = Counter()
        for pod in pending:
            templates = self._templates.items()
            alone = {name: refusal(pod, node, cluster_of([node], []), self._by) for name, node in templates}
            spare.update(name for name, refused in alone.items() if refused is None)
        size = len(pending)
        return any(count == size and self._enough[name] >= size for name, count in spare.items())

    # -- reports

    def misled(self) -> list[str]:
        """Return pods that report Unschedulable although their queue has no room for them.

        For pods with a reservation, in addition to the placed pods and to all others that report it. If the queue tree
        is invalid, no queue has room.
        """
        standing, found = self._standing, []
        silent = [pod for pod in standing.reserved if not _wants_a_node(pod)]
        for pod in standing.pods:
            queue = standing.queue_of(pod)
            if not _is_loose(pod) or not _wants_a_node(pod) or not queue or not standing.queues:
                continue
            gang = read.gang_of(pod)
            if gang not in standing.groups and read.is_native(gang):
                continue
            if standing.lacks(pod):
                # L22 covers these.
                continue
            if read.is_batch(pod) and standing.fault and not read.asks_for_nothing(pod):
                found.append(f"{name_of(pod)} says Unschedulable, and no node helps: {standing.fault}")
                continue
            others = silent if self._is_reserved(pod) else []
            if not standing.declares_room(queue, [pod], 1, without=others):
                found.append(f"{name_of(pod)} says Unschedulable, and {queue} has no room")
            elif read.is_native(gang) and standing.refuses_gang(gang, without=others):
                found.append(f"{name_of(pod)} says Unschedulable, and {queue} has no room for its gang")
        return found


def _wants_a_node(pod: Json) -> bool:
    return condition_of(pod).get("reason") == "Unschedulable"


def _waits_with_room(pod: Json) -> bool:
    """Return whether the pod reports that its queue has room for it, and no node has."""
    return condition_of(pod).get("reason") in ("Unschedulable", "NodeShardFull")


def _is_loose(pod: Json) -> bool:
    return is_ours(pod) and read.waits(pod) and not gates(pod)


async def until_served(world: World, cluster: GateCluster, by: Rules) -> bool:
    """Return whether all pods that can be are admitted and have their nodes in time, and the autoscaler is at rest."""
    deadline = world.loop.time() + SERVED_WITHIN
    while True:
        served = _Served(world, cluster, by)
        kept, unserved = served.kept(), served.unserved()
        if not kept and not unserved and cluster.is_calm:
            return True
        if world.loop.time() >= deadline:
            for each in (*kept, *unserved)[:3]:
                world.safety.violated("L17", f"{each}, and is not so after {SERVED_WITHIN:g} s")
            return not (kept or unserved)
        await asyncio.sleep(1.0)


def check_gates(world: World, cluster: GateCluster, by: Rules) -> None:
    """Check all gates of a world at rest."""
    world.safety.look("L17")
    served = _Served(world, cluster, by)
    held = [pod for pod in served._standing.pods if is_held(pod)]
    if held:
        world.states.reached("pod waits behind its gate at rest")
    if any(read.is_native(read.gang_of(pod)) for pod in held):
        world.states.reached("gang of Kubernetes' own behind its gate at rest")
    for problem in (*served.kept(), *served.unserved(), *served.misled()):
        world.safety.violated("L17", problem)
