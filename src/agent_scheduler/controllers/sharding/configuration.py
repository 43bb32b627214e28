"""The settings in effect: the ConfigMap's last valid ones, or the flags' if there has been none.

A ConfigMap is validated as a whole. An invalid one changes nothing: the settings in effect stay, and if there are none,
because the process has just started, no shard is written until the ConfigMap is valid. The deletion of the ConfigMap
changes nothing either. The flags apply only from a start without a ConfigMap until there is one.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

import msgspec

from agent_scheduler.config.sharding import FILE, ShardingConfiguration, load_sharding
from agent_scheduler.engine.shards.settings import NOBODY, PlanSettings
from agent_scheduler.objects.config_map import ConfigMap
from apimachinery.errors import ConfigurationError
from kube_client.recorder import ObjectReference


class ShardingSettings(NamedTuple):
    """Complete settings."""

    plan: PlanSettings
    #: Seconds between two full syncs.
    sync_period: float
    #: Whether changes of nodes and pods are handled immediately.
    event_trigger: bool
    #: The origin of the settings, for messages.
    source: str


class EffectiveSettings:
    """Owner of the settings in effect."""

    def __init__(self, flags: ShardingSettings, *, namespace: str, name: str) -> None:
        self._flags = flags
        self._namespace = namespace
        self._name = name
        #: None if there are none, in which case no shard is written.
        self.settings: ShardingSettings | None = None
        #: Why the current ConfigMap is not in effect; empty if it is, or if there is none.
        self.problem = ""
        #: The ConfigMap for events; the last one if it was deleted.
        self.about = ObjectReference("ConfigMap", namespace, name, "")

    def start(self) -> bool:
        """Apply the flags if no ConfigMap was received by the end of the first list. Returns whether they apply."""
        if self.settings is None and not self.problem:
            self.settings = self._flags
        return self.settings is self._flags

    def take(self, found: ConfigMap) -> tuple[str, ...]:
        """Apply the ConfigMap. Returns warnings; if it is invalid, `problem` has the reason."""
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


def read(found: ConfigMap, *, source: str) -> ShardingConfiguration:
    """Parse a ConfigMap. Raises ConfigurationError."""
    text = (found.data or {}).get(FILE)
    if text is None:
        keys = ", ".join(sorted(found.data or ())) or "none"
        raise ConfigurationError(f"{source}: the key does not exist; found: {keys}")
    return load_sharding(text, source=source)


def complete(sharding: ShardingConfiguration, flags: ShardingSettings, *, source: str) -> ShardingSettings:
    """Return the settings of a file, with the flags' values for those that it does not set."""
    return ShardingSettings(
        sharding.plan,
        flags.sync_period if sharding.sync_period is None else sharding.sync_period,
        flags.event_trigger if sharding.node_event_trigger is None else sharding.node_event_trigger,
        source,
    )


def without(plan: PlanSettings, blocked: Set[str]) -> PlanSettings | None:
    """Return the settings of the other shards; None if there are none. The leftover of a blocked shard is in none."""
    if not blocked:
        return plan
    shards = tuple(shard for shard in plan.shards if shard.name not in blocked)
    if not shards:
        return None
    leftover = NOBODY if plan.leftover_shard in blocked else plan.leftover_shard or NOBODY
    return msgspec.structs.replace(plan, shards=shards, leftover=leftover)
