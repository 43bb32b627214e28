"""Extension points, and the plugins of a profile at each: the rules by which kube-scheduler reads a profile.

A profile begins with a base. The profile's own sets are applied to the base point by point (`merged`), and the plugins
at `multiPoint` are then added to all points that they implement (`expanded`):

1. plugins named at the point and at multiPoint, in the order of the point;
2. plugins of multiPoint that the point neither names nor disables, in the order of multiPoint;
3. plugins that only the point names.

`"*"` among the disabled of a point removes all plugins of multiPoint there. Naming a plugin at multiPoint that is
already there changes its weight, not its position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

MULTI_POINT: Final = "multiPoint"
ALL: Final = "*"

#: The points in the order in which a pod passes them.
POINTS: Final = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)

#: Points that are a part of another one here: a plugin that implements the latter has both.
PART_OF: Final[Mapping[str, str]] = MappingProxyType({"preFilter": "filter", "preScore": "score"})


@dataclass(frozen=True, slots=True)
class Enabled:
    """A plugin at a point. `weight` is used for scores; 0 means unset, which counts as 1."""

    name: str
    weight: int = 0


@dataclass(frozen=True, slots=True)
class PluginSet:
    """The plugins of one point. Names are unique among the enabled and among the disabled."""

    enabled: tuple[Enabled, ...] = ()
    disabled: tuple[str, ...] = ()


NOTHING: Final = PluginSet()
PluginSets = Mapping[str, PluginSet]


def merged(base: PluginSet, own: PluginSet) -> PluginSet:
    """Apply `own` to `base`: its disabled are removed, its enabled replace plugins of the same name or are appended."""
    disabled = {*own.disabled, *base.disabled}
    replacing = {plugin.name: plugin for plugin in own.enabled}
    kept = [
        replacing.pop(plugin.name, plugin)
        for plugin in (() if ALL in disabled else base.enabled)
        if plugin.name not in disabled
    ]
    return PluginSet((*kept, *replacing.values()), tuple(dict.fromkeys((*own.disabled, *base.disabled))))


def expanded(own: PluginSet, multi: PluginSet, implements: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the names of the plugins at one point, in the order in which they are asked."""
    named = [plugin.name for plugin in own.enabled]
    spread = (
        []
        if ALL in own.disabled
        else [plugin.name for plugin in multi.enabled if plugin.name not in own.disabled and implements(plugin.name)]
    )
    overriding = [name for name in named if name in spread]
    return (
        *overriding,
        *(name for name in spread if name not in named),
        *(name for name in named if name not in spread),
    )


def weight_of(name: str, score: PluginSet, multi: PluginSet) -> int:
    """Return the weight of the score `name`: that of the score point, or else of multiPoint; 1 if neither sets it."""
    for plugin in (*score.enabled, *multi.enabled):
        if plugin.name == name:
            return plugin.weight or 1
    return 1
