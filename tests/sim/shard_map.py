"""NodeShards as the API has them, read plainly, and who is behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
import yaml

from agent_scheduler.controllers.sharding.store import OWNER, OWNER_LABEL
from embedded_kubernetes.store import Event, Record
from tests.support.places import CONFIG

from .gang_load import NAME as BATCH
from .shard_load import PEER, Shards

if TYPE_CHECKING:
    from .processes import Process
    from .world import World

SHARDS = ("shard.volcano.sh", "nodeshards")
NODES = ("", "nodes")
PATH = "/apis/shard.volcano.sh/v1alpha1/nodeshards"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_DEFINITION = CONFIG / "crd" / "shard.volcano.sh_nodeshards.yaml"
MERGE = "application/merge-patch+json"

Names = frozenset[str]


@dataclass(frozen=True, slots=True)
class View:
    """One NodeShard as committed."""

    name: str
    desired: Names
    in_use: Names
    to_add: Names
    to_remove: Names
    updated: str

    def of(self, nodes: Names) -> View:
        """What it says of these."""
        of = (each & nodes for each in (self.desired, self.in_use, self.to_add, self.to_remove))
        return View(self.name, *of, self.updated)


def view(record: Record) -> View:
    shard = orjson.loads(record.data)
    status = shard.get("status") or {}
    return View(
        record.name,
        frozenset((shard.get("spec") or {}).get("nodesDesired") or ()),
        frozenset(status.get("nodesInUse") or ()),
        frozenset(status.get("nodesToAdd") or ()),
        frozenset(status.get("nodesToRemove") or ()),
        status.get("lastUpdateTime") or "",
    )


def is_managed(record: Record) -> bool:
    """Whether a shard has the label of the sharding controller."""
    labels = orjson.loads(record.data)["metadata"].get("labels") or {}
    return labels.get(OWNER_LABEL) == OWNER


class ShardMap:
    """Made with its world. Owner of nothing but subscriptions: what it says is read from the store."""

    def __init__(self, world: World, shape: Shards) -> None:
        self._world = world
        self.shape = shape
        self.subscribers: list[Callable[[Event], None]] = []

    @property
    def is_known(self) -> bool:
        """Whether the cluster has the kind."""
        return SHARDS in self._world.store.tables

    def install(self) -> None:
        """Define the kind, and make the first shards."""
        self._world.call("POST", _CRDS, yaml.safe_load(_DEFINITION.read_text()))
        self._world.store.tables[SHARDS].subscribers.append(self._tell)
        for name, nodes in self.shape.desired.items():
            self.create(name, nodes)

    def _tell(self, event: Event) -> None:
        for subscriber in self.subscribers:
            subscriber(event)

    # -- what is there

    def all(self) -> Iterator[View]:
        if self.is_known:
            for record in self._world.store.tables[SHARDS].scan(""):
                yield view(record)

    def managed(self) -> Iterator[View]:
        """Those that the sharding controller may write."""
        if self.is_known:
            for record in self._world.store.tables[SHARDS].scan(""):
                if is_managed(record):
                    yield view(record)

    def get(self, name: str) -> View | None:
        record = self._world.store.tables[SHARDS].records.get(name) if self.is_known else None
        return None if record is None else view(record)

    def of_pod(self, pod: dict[str, Any]) -> str:
        """The shard of the scheduler that a pod asks for."""
        name: str = pod["spec"]["schedulerName"]
        return self.shape.batch if name == BATCH else name

    def mode(self, scheduler: str) -> str:
        return self.shape.modes.get(scheduler, "none")

    def open_to(self, scheduler: str) -> Names | None:
        """The nodes that pods of a scheduler may be bound to; None for all."""
        if self.mode(scheduler) != "hard":
            return None
        found = self.get(scheduler)
        return frozenset() if found is None else found.in_use

    def waiting(self) -> int:
        """How many shards of living schedulers desire more than they use."""
        return sum(bool(each.desired - each.in_use) for each in self.all() if self.lives(each.name))

    def processes(self, shard: str) -> list[Process]:
        return [each for each in self._world.processes if each.scheduler == shard]

    def lives(self, shard: str) -> bool:
        """Whether somebody is behind it, or will be."""
        return shard == PEER or any(each.is_wanted for each in self.processes(shard))

    def works(self, shard: str) -> bool:
        """Whether a process of it may write now."""
        return any(
            each.leads() and each.transport is not None and not each.transport.closed
            for each in self.processes(shard)
        )

    def lasting(self, seconds: float) -> Names | None:
        """Where an autoscaler makes nodes and takes them away, again and again for gangs that do not fit into as many
        as it may make: the nodes that are there for so long. Else None."""
        if self._world.gates is None:
            return None
        by = self._world.time_of_day(-seconds).strftime("%Y-%m-%dT%H:%M:%SZ")
        nodes = (orjson.loads(record.data) for record in self._world.store.tables[NODES].scan(""))
        return Names(
            node["metadata"]["name"] for node in nodes if node["metadata"]["creationTimestamp"] <= by
        )

    # -- what administrators do

    def create(self, name: str, nodes: list[str]) -> None:
        body: dict[str, Any] = {
            "apiVersion": "shard.volcano.sh/v1alpha1",
            "kind": "NodeShard",
            "metadata": {"name": name},
            "spec": {"nodesDesired": nodes},
        }
        self._world.call("POST", PATH, body)

    def desire(self, name: str, nodes: Names) -> None:
        self._world.call("PATCH", f"{PATH}/{name}", {"spec": {"nodesDesired": sorted(nodes)}}, MERGE)

    def delete(self, name: str) -> None:
        self._world.call("DELETE", f"{PATH}/{name}")
