"""What a session is told to do: actions, and plugins in tiers with their switches and arguments (Volcano's `conf`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

#: A plugin's switches that are off where nobody sets them; all others are on.
_OFF: Final = frozenset(("enableHierarchy",))

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

#: The feature gate under which pods lose the gate of their queue's capacity.
QUEUE_ADMISSION_GATES: Final = "SchedulingGatesQueueAdmission"


#: How groups are let into their queues: by what these declare alone, or by the room of the cluster, too, as in Volcano.
QUEUE: Final = "queue"
CLUSTER: Final = "cluster"


class PluginOption(Struct, frozen=True):
    """`switches` are by their key in Volcano's file, such as `enableJobOrder`."""

    name: str
    arguments: Mapping[str, Any] = _NOTHING
    switches: Mapping[str, bool] = _NOTHING

    def enabled(self, switch: str) -> bool:
        return self.switches.get(switch, switch not in _OFF)


#: Plugins that vote together.
Tier = tuple[PluginOption, ...]


class SessionConf(Struct, frozen=True, kw_only=True):
    actions: tuple[str, ...] = ("enqueue", "allocate", "backfill")
    tiers: tuple[Tier, ...] = ()
    #: Action -> its arguments.
    configurations: Mapping[str, Mapping[str, Any]] = _NOTHING
    features: frozenset[str] = frozenset()
    #: QUEUE or CLUSTER.
    enqueue_by: str = QUEUE
    #: Whether queues may hold more than their shares of what no job within its queue's share waits for (`lending`).
    work_conserving: bool = False

    def option(self, plugin: str) -> PluginOption | None:
        """The first of its name."""
        return next((each for tier in self.tiers for each in tier if each.name == plugin), None)
