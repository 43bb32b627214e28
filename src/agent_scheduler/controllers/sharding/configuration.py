"""Which settings are in effect: the ConfigMap's last good ones, or the flags' where there has been none.

A ConfigMap is validated whole. One that cannot be used changes nothing: what was in effect stays, and if nothing was,
because the process has just started, no shard is touched until it can be used. One that goes away changes nothing,
either. The flags hold only from a start without a ConfigMap until there is one.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

import msgspec

from agent_scheduler.config.sharding import FILE, Sharding, load_sharding
from agent_scheduler.engine.shards.settings import NOBODY, PlanSettings
from agent_scheduler.kube.recorder import ObjectReference
from agent_scheduler.objects.config_map import ConfigMap
from apimachinery.errors import ConfigurationError


class ShardingSettings(NamedTuple):
    """With nothing left open."""

    plan: PlanSettings
    #: Seconds between two full syncs.
    sync_period: float
    #: Whether changes of nodes and pods are acted on at once.
    event_trigger: bool
    #: Where they were said, for people.
    source: str


class Effective:
    """Owner of the settings in effect."""

    def __init__(self, flags: ShardingSettings, *, namespace: str, name: str) -> None:
        self._flags = flags
        self._namespace = namespace
        self._name = name
        #: None: nothing is to be done.
        self.settings: ShardingSettings | None = None
        #: Why the ConfigMap, as it is now, is not in effect; empty if it is, or if there is none.
        self.problem = ""
        #: The ConfigMap, for events about it; as it was, if it is gone.
        self.about = ObjectReference("ConfigMap", namespace, name, "")

    def start(self) -> bool:
        """All that there was at the start has been seen: without a ConfigMap, the flags hold. Whether they do."""
        if self.settings is None and not self.problem:
            self.settings = self._flags
        return self.settings is self._flags

    def take(self, found: ConfigMap) -> tuple[str, ...]:
        """The ConfigMap is as given now. Returns what to warn of; where it cannot be used, `problem` says why."""
        self.about = ObjectReference("ConfigMap", self._namespace, self._name, found.metadata.uid)
        source = f"ConfigMap {self._namespace}/{self._name}, {FILE}"
        try:
            sharding = read(found, source=source)
        except ConfigurationError as error:
            self.problem = str(error)
            return ()
        self.problem = ""
        self.settings = complete(sharding, self._flags, source=source)
        return sharding.warnings


def read(found: ConfigMap, *, source: str) -> Sharding:
    """What a ConfigMap says. Raises ConfigurationError."""
    text = (found.data or {}).get(FILE)
    if text is None:
        keys = ", ".join(sorted(found.data or ())) or "none"
        raise ConfigurationError(f"{source}: there is no such key; found: {keys}")
    return load_sharding(text, source=source)


def complete(sharding: Sharding, flags: ShardingSettings, *, source: str) -> ShardingSettings:
    """What a file leaves open is as the flags say."""
    return ShardingSettings(
        sharding.plan,
        flags.sync_period if sharding.sync_period is None else sharding.sync_period,
        flags.event_trigger if sharding.node_event_trigger is None else sharding.node_event_trigger,
        source,
    )


def without(plan: PlanSettings, blocked: Set[str]) -> PlanSettings | None:
    """The settings of all other shards; None if there are none. What would be left to a blocked one is in none."""
    if not blocked:
        return plan
    shards = tuple(shard for shard in plan.shards if shard.name not in blocked)
    if not shards:
        return None
    leftover = NOBODY if plan.leftover_shard in blocked else plan.leftover_shard or NOBODY
    return msgspec.structs.replace(plan, shards=shards, leftover=leftover)
