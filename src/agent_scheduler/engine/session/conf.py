"""The configuration of sessions: actions, and plugins in tiers with switches and arguments (Volcano's `conf`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

#: The switches of plugins that are off by default; all others are on.
_OFF: Final = frozenset(("enableHierarchy",))

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

#: The feature gate that enables sessions to remove queue gates of pods.
QUEUE_ADMISSION_GATES: Final = "SchedulingGatesQueueAdmission"


#: How groups are admitted to queues: by declared limits only, or also by the capacity of the cluster, as in Volcano.
QUEUE: Final = "queue"
CLUSTER: Final = "cluster"


class PluginOption(Struct, frozen=True):
    """A configured plugin. `switches` are by their key in Volcano's file, such as `enableJobOrder`."""

    name: str
    arguments: Mapping[str, Any] = _NOTHING
    switches: Mapping[str, bool] = _NOTHING

    def enabled(self, switch: str) -> bool:
        return self.switches.get(switch, switch not in _OFF)


#: Plugins whose votes are combined.
Tier = tuple[PluginOption, ...]


class SessionConf(Struct, frozen=True, kw_only=True):
    actions: tuple[str, ...] = ("enqueue", "allocate", "backfill")
    tiers: tuple[Tier, ...] = ()
    #: Action -> its arguments.
    configurations: Mapping[str, Mapping[str, Any]] = _NOTHING
    features: frozenset[str] = frozenset()
    #: QUEUE or CLUSTER.
    enqueue_by: str = QUEUE
    #: Whether queues may exceed their shares with resources that no job within its queue's share needs (`lending`).
    work_conserving: bool = False

    def option(self, plugin: str) -> PluginOption | None:
        """Return the first plugin of this name; None if it is not configured."""
        return next((each for tier in self.tiers for each in tier if each.name == plugin), None)
