"""Gates where NodeShards divide the nodes between a scheduler of the fast path and one with a batch scheduler beside:
whose pods and nodes are whose, and the operator who gives the nodes of the autoscaler to shards."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from embedded_kubernetes.node_groups import NODE_GROUP
from embedded_kubernetes.store import Event

from . import gang_reading as read
from .gang_load import GROUP_NAME, QUEUE_NAME, Gangs
from .gate_load import Gates
from .plan_load import Plans
from .shard_load import Shards
from .shard_map import Names, ShardMap

if TYPE_CHECKING:
    from .world import World

Body = dict[str, Any]

FAST, BATCH = "agent-fast", "agent-batch"
PODS, NODES, EVENTS = ("", "pods"), ("", "nodes"), ("", "events")
#: Seconds for which a node that nobody uses stays, where none goes.
FOR_EVER = 1_000_000
#: Seconds until the operator has put right what is desired by nobody or by two, and what is no more.
_TIDIED = (5.0, 15.0)


def divide(rng: random.Random, nodes: list[Body], pods: list[tuple[float, Body]], gangs: Gangs) -> Shards:
    """Nodes in turn, one or the other to nobody or to both; pods of the fast path are mostly `FAST`'s."""
    modes = rng.choice(
        (("hard", "hard"), ("hard", "hard"), ("hard", "hard"), ("soft", "soft"), ("hard", "soft"))
    )
    shards = Shards(
        modes=dict(zip((FAST, BATCH), modes, strict=True)),
        desired={FAST: [], BATCH: []},
        kind_after=rng.choice((0.0, 0.0, 0.0, rng.uniform(0.0, 8.0))),
        batch=BATCH,
        all_return=True,
    )
    for number, each in enumerate(nodes):
        owners = rng.choice((*(((FAST,), (BATCH,))[number % 2],) * 8, (), (FAST, BATCH)))
        for owner in owners:
            shards.desired[owner].append(each["metadata"]["name"])
    for _, body in pods:
        said = body["metadata"].setdefault("annotations", {})
        if not read.is_batch(body):
            body["spec"]["schedulerName"] = rng.choice((FAST, FAST, FAST, BATCH))
        elif QUEUE_NAME not in said:
            # A process without a batch scheduler does not know groups (docs/gates.md#limits).
            group = gangs.groups.get(said.get(GROUP_NAME, ""), {})
            said[QUEUE_NAME] = read.queue_of_group(group)
    return shards


def plan(rng: random.Random, shards: Shards) -> Plans:
    """The sharding controller divides the nodes, and gives those of the autoscaler to either."""
    shards.desired = {}
    names = list(shards.modes)
    return Plans(
        names=names,
        flags=",".join(f"{name}:agent:0.0:1.0:false:0:0" for name in names),
        sync_period=rng.choice((2.0, 10.0, 60.0)),
        event_trigger=rng.random() < 0.7,
        lease=rng.choice(((15, 10.0, 2.0), (5, 3.0, 0.5))),
        replicas=rng.choice((1, 2)),
        has_first=False,
    )


def keep_nodes(gates: Gates) -> Gates:
    """No node goes. Where a new one may be given to a shard whose pods did not ask for it, it would go again, and the
    pods for which it came would ask for another, for ever (docs/sharding.md#what-a-scheduler-does-with-its-shard)."""
    return replace(
        gates, rules=tuple(re.sub(r"idle=[0-9.]+", f"idle={FOR_EVER}", each) for each in gates.rules)
    )


class Operator:
    """Subscribes to the store. Gives each new node to the shard of the pod for which the autoscaler made it."""

    def __init__(self, world: World, shards: ShardMap) -> None:
        self._world = world
        self._shards = shards
        self._rng = random.Random(f"{world.seed} operator")
        #: Node group -> the shards for which nodes of it are on their way, by the size that the group is to have then.
        self._awaited: dict[str, dict[str, str]] = {}
        self._tidies = False
        #: How often it has changed what a shard desires.
        self.writes = 0
        world.store.tables[NODES].subscribers.append(self._node)
        world.store.tables[EVENTS].subscribers.append(self._event)
        shards.subscribers.append(lambda _event: self._tidy_soon())

    def _event(self, event: Event) -> None:
        told = orjson.loads(event.record.data)
        if event.type != "ADDED" or told.get("reason") != "TriggeredScaleUp":
            return
        about = told["involvedObject"]
        record = self._world.store.tables[PODS].get(about["namespace"], about["name"])
        if record is None:
            return
        group = told["message"].partition("[{")[2].partition(" ")[0]
        # Of the pods for which one node comes the first one decides.
        self._awaited.setdefault(group, {}).setdefault(
            told["message"], self._shards.of_pod(orjson.loads(record.data))
        )

    def _node(self, event: Event) -> None:
        self._tidy_soon()
        labels = orjson.loads(event.record.data)["metadata"].get("labels") or {}
        awaited = self._awaited.get(labels.get(NODE_GROUP, ""))
        if event.type == "ADDED" and awaited:
            name, owner = event.record.name, awaited.pop(next(iter(awaited)))
            self._later(self._rng.choice((0.0, 0.0, 0.5, 3.0)), lambda: self._give(name, owner))

    def _give(self, node: str, owner: str) -> None:
        shard = self._shards.get(owner)
        if shard is not None and not any(node in each.desired for each in self._shards.all()):
            self._desire(owner, shard.desired | {node})

    def _tidy_soon(self) -> None:
        if not self._tidies:
            self._tidies = True
            self._later(self._rng.uniform(*_TIDIED), self._tidy)

    def _tidy(self) -> None:
        """Each node that there is to one shard: that which uses it, or desires it, or the one that has fewer."""
        self._tidies = False
        there = {record.name for record in self._world.store.tables[NODES].scan("")}
        shards = list(self._shards.all())
        if not shards:
            return
        wanted: dict[str, set[str]] = {each.name: set() for each in shards}
        sizes = Counter({each.name: len(each.desired & there) for each in shards})
        for node in sorted(there):
            desiring = [each for each in shards if node in each.desired]
            using = [each for each in desiring if node in each.in_use]
            owner = (using or desiring or sorted(shards, key=lambda each: sizes[each.name]))[0].name
            if not desiring:
                sizes[owner] += 1
            wanted[owner].add(node)
        for each in shards:
            if (nodes := Names(wanted[each.name])) != each.desired:
                self._desire(each.name, nodes)

    def _desire(self, name: str, nodes: Names) -> None:
        self.writes += 1
        self._shards.desire(name, nodes)

    def _later(self, seconds: float, act: Any) -> None:
        self._world.plan.lasts(self._world.loop.time() + seconds)
        self._world.loop.call_later(seconds, act)
