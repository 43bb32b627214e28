"""Reads NodeShards, their schedulers, and the sharding controller's ConfigMap from the API's objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from agent_scheduler.config.sharding import FILE, load_sharding
from agent_scheduler.controllers.sharding.configuration import ShardingSettings, complete
from agent_scheduler.controllers.sharding.controller import CONFIG_MAP, NAMESPACE
from agent_scheduler.controllers.sharding.store import OWNER, OWNER_LABEL
from embedded_kubernetes.store import Event, Record
from tests.support.places import CONFIG

from .api import CRDS_PATH, NODES, content, name_of, objects
from .gang_load import NAME as BATCH
from .kinds import Controller, Process, World
from .shard_load import PEER, Plans, Shards, flags_of

SHARDS = ("shard.volcano.sh", "nodeshards")
SHARDS_PATH = "/apis/shard.volcano.sh/v1alpha1/nodeshards"
_DEFINITION = CONFIG / "crd" / "shard.volcano.sh_nodeshards.yaml"
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
        """Return the view restricted to these nodes."""
        of = (each & nodes for each in (self.desired, self.in_use, self.to_add, self.to_remove))
        return View(self.name, *of, self.updated)


def view(record: Record) -> View:
    shard = content(record)
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
    """Return whether a shard has the label of the sharding controller."""
    labels = content(record)["metadata"].get("labels") or {}
    return labels.get(OWNER_LABEL) == OWNER


class ShardMap:
    """The NodeShards of a world, read from the store. Created with the world; owns only subscriptions."""

    def __init__(self, world: World, shape: Shards) -> None:
        self._world = world
        self.shape = shape
        self.subscribers: list[Callable[[Event], None]] = []

    @property
    def is_known(self) -> bool:
        """Whether the cluster has the CRD."""
        return SHARDS in self._world.store.tables

    def install(self) -> None:
        """Create the CRD and the first shards."""
        self._world.call("POST", CRDS_PATH, yaml.safe_load(_DEFINITION.read_text()))
        self._world.store.tables[SHARDS].subscribers.extend(self.subscribers)
        for name, nodes in self.shape.desired.items():
            self.create(name, nodes)

    # -- current objects

    def _records(self) -> Iterator[Record]:
        return iter(self._world.store.tables[SHARDS].scan("") if self.is_known else ())

    def all(self) -> Iterator[View]:
        return map(view, self._records())

    def managed(self) -> Iterator[View]:
        """Return the shards that the sharding controller may write."""
        return map(view, filter(is_managed, self._records()))

    def get(self, name: str) -> View | None:
        record = self._world.store.tables[SHARDS].records.get(name) if self.is_known else None
        return None if record is None else view(record)

    def of_pod(self, pod: dict[str, Any]) -> str:
        """Return the shard of the pod's scheduler."""
        name: str = pod["spec"]["schedulerName"]
        return self.shape.batch if name == BATCH else name

    def mode(self, scheduler: str) -> str:
        return self.shape.modes.get(scheduler, "none")

    def open_to(self, scheduler: str) -> Names | None:
        """Return the nodes that pods of a scheduler may be bound to; None for all."""
        if self.mode(scheduler) != "hard":
            return None
        found = self.get(scheduler)
        return frozenset() if found is None else found.in_use

    def waiting(self) -> int:
        """Return how many shards of living schedulers desire more than they use."""
        return sum(bool(each.desired - each.in_use) for each in self.all() if self.lives(each.name))

    def processes(self, shard: str) -> list[Process]:
        return [each for each in self._world.processes if each.scheduler == shard]

    def lives(self, shard: str) -> bool:
        """Return whether the shard's scheduler runs, or will."""
        return shard == PEER or any(each.is_wanted for each in self.processes(shard))

    def works(self, shard: str) -> bool:
        """Return whether a process of the shard's scheduler may write now."""
        return any(each.leads() and each.is_up for each in self.processes(shard))

    def lasting(self, seconds: float) -> Names | None:
        """Return the nodes that have existed for this time, if an autoscaler adds and removes nodes; None without one.

        It may do so endlessly for gangs that do not fit into its maximum of nodes.
        """
        if self._world.gates is None:
            return None
        by = self._world.timestamp(-seconds)
        nodes = objects(self._world.store, NODES)
        return Names(name_of(node) for node in nodes if node["metadata"]["creationTimestamp"] <= by)

    # -- actions of administrators

    def create(self, name: str, nodes: list[str]) -> None:
        kind = {"apiVersion": "shard.volcano.sh/v1alpha1", "kind": "NodeShard"}
        body = {**kind, "metadata": {"name": name}, "spec": {"nodesDesired": nodes}}
        self._world.call("POST", SHARDS_PATH, body)

    def desire(self, name: str, nodes: Names) -> None:
        self._world.call("PATCH", f"{SHARDS_PATH}/{name}", {"spec": {"nodesDesired": sorted(nodes)}})

    def delete(self, name: str) -> None:
        self._world.call("DELETE", f"{SHARDS_PATH}/{name}")


CONFIG_MAPS = ("", "configmaps")
CONFIG_MAPS_PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
#: The writer of the ConfigMap records whether it is valid; the judged processes do not read that.
_USABLE = "example.com/usable"


class Said(NamedTuple):
    """The content of the ConfigMap since `at`. `settings`: None if it is invalid or missing."""

    at: float
    is_there: bool
    settings: ShardingSettings | None


class PlanMap:
    """The history of the sharding controller's ConfigMap. Created with the world."""

    def __init__(self, world: World, shards: ShardMap, plans: Plans) -> None:
        self._world = world
        self.shards = shards
        self.plans = plans
        self.flags = flags_of(plans)
        self.history = [Said(world.loop.time(), False, None)]
        world.store.tables[CONFIG_MAPS].subscribers.append(self._changed)

    def install(self) -> None:
        self._world.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        if self.plans.has_first:
            self.say(self.plans.first, is_usable=self.plans.is_usable)

    def _changed(self, event: Event) -> None:
        if event.record.name != CONFIG_MAP:
            return
        now = self._world.loop.time()
        if event.type == "DELETED":
            self._world.trace("", "the plan's configuration is deleted")
            self.history.append(Said(now, False, None))
            return
        found = content(event.record)
        text = (found.get("data") or {}).get(FILE)
        usable = found["metadata"]["annotations"][_USABLE] == "yes"
        self._world.trace("", f"the plan's configuration, usable: {usable}: {text!r}")
        settings = complete(load_sharding(text, source=""), self.flags, source="") if usable else None
        self.history.append(Said(now, True, settings))

    # -- actions of administrators

    @property
    def is_there(self) -> bool:
        return self.history[-1].is_there

    def say(self, text: str | None, *, is_usable: bool) -> None:
        """Create the ConfigMap, or change it."""
        marks = {_USABLE: "yes" if is_usable else "no"}
        data = {} if text is None and not self.is_there else {FILE: text}
        body = {"metadata": {"name": CONFIG_MAP, "annotations": marks}, "data": data}
        if self.is_there:
            self._world.call("PATCH", f"{CONFIG_MAPS_PATH}/{CONFIG_MAP}", body)
        else:
            self._world.call("POST", CONFIG_MAPS_PATH, body)

    def forget(self) -> None:
        self._world.call("DELETE", f"{CONFIG_MAPS_PATH}/{CONFIG_MAP}")

    # -- current objects

    def controllers(self) -> Iterator[Controller]:
        return (each for each in self._world.processes if each.is_planner)

    def leader(self) -> Controller | None:
        for each in self.controllers():
            if each.leads() and each.is_up:
                return each
        return None

    def may_go_by(self, since: float) -> list[ShardingSettings]:
        """Return the settings that may be in effect in a process that started at `since`."""
        found = []
        for index, said in enumerate(self.history):
            if index + 1 < len(self.history) and self.history[index + 1].at < since:
                continue
            if said.settings is not None:
                found.append(said.settings)
            elif not said.is_there:
                found.append(self.flags)
        return found


def same(one: ShardingSettings, other: ShardingSettings) -> bool:
    """Return whether two settings are equal, wherever they come from."""
    return one[:3] == other[:3]
