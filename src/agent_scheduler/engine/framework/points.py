"""Extension points, and which plugins a profile has at each: the rules by which kube-scheduler reads a profile.

A profile begins with a base. What it says itself is laid over the base point by point (`merged`), and what then
stands at `multiPoint` is spread over all the points that a plugin implements (`expanded`):

1. plugins that are named at the point and at multiPoint, in the order in which the point names them;
2. plugins of multiPoint that the point neither names nor disables, in multiPoint's order;
3. plugins that only the point names.

`"*"` among the disabled of a point takes all of multiPoint's away there. Naming a plugin at multiPoint that is there
already changes its weight, not its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

MULTI_POINT: Final = "multiPoint"
ALL: Final = "*"

#: In the order in which a pod passes them.
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

#: Points that are a part of another one here: whoever implements that one has this one, too.
PART_OF: Final[Mapping[str, str]] = MappingProxyType({"preFilter": "filter", "preScore": "score"})


@dataclass(frozen=True, slots=True)
class Enabled:
    """A plugin at a point. `weight` is read of scores; 0: not given, which counts as 1."""

    name: str
    weight: int = 0


@dataclass(frozen=True, slots=True)
class PluginSet:
    """What is said of one point. Names are unique among the enabled and among the disabled."""

    enabled: tuple[Enabled, ...] = ()
    disabled: tuple[str, ...] = ()


NOTHING: Final = PluginSet()
PluginSets = Mapping[str, PluginSet]


def merged(base: PluginSet, own: PluginSet) -> PluginSet:
    """`own` laid over `base`: its disabled leave, its enabled take the place of their namesakes or come last."""
    disabled = {*own.disabled, *base.disabled}
    replacing = {plugin.name: plugin for plugin in own.enabled}
    kept = [
        replacing.pop(plugin.name, plugin)
        for plugin in (() if ALL in disabled else base.enabled)
        if plugin.name not in disabled
    ]
    return PluginSet((*kept, *replacing.values()), tuple(dict.fromkeys((*own.disabled, *base.disabled))))


def expanded(own: PluginSet, multi: PluginSet, implements: Callable[[str], bool]) -> tuple[str, ...]:
    """The names of the plugins at one point, in the order in which they are asked."""
    named = [plugin.name for plugin in own.enabled]
    spread = (
        []
        if ALL in own.disabled
        else [
            plugin.name
            for plugin in multi.enabled
            if plugin.name not in own.disabled and implements(plugin.name)
        ]
    )
    overriding = [name for name in named if name in spread]
    return (
        *overriding,
        *(name for name in spread if name not in named),
        *(name for name in named if name not in spread),
    )


def weight_of(name: str, score: PluginSet, multi: PluginSet) -> int:
    """What the score of `name` is multiplied by: as the score point says, or else multiPoint; 1 if neither does."""
    for plugin in (*score.enabled, *multi.enabled):
        if plugin.name == name:
            return plugin.weight or 1
    return 1
