"""The sharding controller's ConfigMap, and which NodeShards are its own: as the API has them, read plainly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from agent_scheduler.config.sharding import FILE, load_sharding
from agent_scheduler.controllers.sharding.configuration import ShardingSettings, complete
from agent_scheduler.controllers.sharding.controller import CONFIG_MAP, NAMESPACE
from embedded_kubernetes.store import Event

from .plan_load import Plans
from .plan_process import Controller, flags_of
from .shard_map import MERGE, ShardMap

if TYPE_CHECKING:
    from .world import World

CONFIG_MAPS = ("", "configmaps")
PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
#: Whoever writes it says whether it can be used; nobody who is judged reads that.
_USABLE = "example.com/usable"


class Said(NamedTuple):
    """What the ConfigMap has said since `at`. `settings`: None where it cannot be used, or is not there."""

    at: float
    is_there: bool
    settings: ShardingSettings | None


class PlanMap:
    """Made with its world. Owner of what the ConfigMap has said so far."""

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
        found = orjson.loads(event.record.data)
        text = (found.get("data") or {}).get(FILE)
        usable = found["metadata"]["annotations"][_USABLE] == "yes"
        self._world.trace("", f"the plan's configuration, usable: {usable}: {text!r}")
        self.history.append(Said(now, True, self._settings(text) if usable else None))

    def _settings(self, text: str) -> ShardingSettings:
        return complete(load_sharding(text, source=""), self.flags, source="")

    # -- what administrators do

    @property
    def is_there(self) -> bool:
        return self.history[-1].is_there

    def say(self, text: str | None, *, is_usable: bool) -> None:
        """Make the ConfigMap, or change it."""
        body: dict[str, Any] = {
            "metadata": {"name": CONFIG_MAP, "annotations": {_USABLE: "yes" if is_usable else "no"}},
            "data": {FILE: text},
        }
        if self.is_there:
            self._world.call("PATCH", f"{PATH}/{CONFIG_MAP}", body, MERGE)
            return
        if text is None:
            body["data"] = {}
        self._world.call("POST", PATH, body)

    def forget(self) -> None:
        self._world.call("DELETE", f"{PATH}/{CONFIG_MAP}")

    # -- what there is

    def controllers(self) -> Iterator[Controller]:
        return (each for each in self._world.processes if isinstance(each, Controller))

    def leader(self) -> Controller | None:
        for each in self.controllers():
            if each.leads() and each.transport is not None and not each.transport.closed:
                return each
        return None

    def may_go_by(self, since: float) -> list[ShardingSettings]:
        """What may be in effect in a process that began then."""
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
    """Wherever they were said."""
    return one[:3] == other[:3]
