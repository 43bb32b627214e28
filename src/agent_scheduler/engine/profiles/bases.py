"""The base profiles, and what a profile cannot change about them.

They name all plugins that kube-scheduler has; those that are not in the registry are left out of a profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from ..framework.args import (
    NodeResourcesFitArgs,
    PluginArgs,
    PodTopologySpreadArgs,
    ScoringStrategy,
)
from ..framework.points import MULTI_POINT, Enabled, PluginSet, PluginSets

#: Plugins that every profile has, and why.
FIXED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "SchedulingGates": "the API server refuses to bind a pod with scheduling gates, whoever asks",
        "PrioritySort": "the queue orders pods by priority, then age, and has no other order",
        "GPUShare": "the ledger gives a pod its GPUs as it takes its room, so there has to be room on some",
        "DefaultBinder": "the binder is what keeps workers from taking the same room twice",
    }
)

#: What it means that a plugin of kube-scheduler is not registered, where its name does not say it.
ABSENT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "SelectorSpread": "PodTopologySpread took its place",
        **dict.fromkeys(
            ("EBSLimits", "GCEPDLimits", "AzureDiskLimits", "CinderLimits"), "NodeVolumeLimits took its place"
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Base:
    """What a profile changes. Arguments that are not here are the plugins' own defaults."""

    plugins: PluginSets
    args: Mapping[str, PluginArgs] = field(default_factory=dict)
    #: As of `Profile`.
    as_kube: bool = False


#: kube-scheduler 1.36's, in its order.
_KUBE: Final = (
    *(Enabled(name) for name in ("SchedulingGates", "PrioritySort", "NodeUnschedulable", "NodeName")),
    Enabled("TaintToleration", 3),
    Enabled("NodeAffinity", 2),
    Enabled("NodePorts"),
    Enabled("NodeResourcesFit", 1),
    *(Enabled(name) for name in ("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone")),
    Enabled("PodTopologySpread", 2),
    Enabled("InterPodAffinity", 2),
    Enabled("DynamicResources", 2),
    Enabled("DefaultPreemption"),
    Enabled("NodeResourcesBalancedAllocation", 1),
    Enabled("ImageLocality", 1),
    Enabled("DefaultBinder"),
    Enabled("NodeDeclaredFeatures"),
    Enabled("GangScheduling"),
)

#: Names of kube-scheduler's default plugins.
DEFAULT_PLUGINS: Final = tuple(plugin.name for plugin in _KUBE)

_MULTI: Final = PluginSet((*_KUBE, Enabled("GPUShare")))

BASES: Final[Mapping[str, Base]] = MappingProxyType(
    {
        "agent": Base(
            {
                MULTI_POINT: _MULTI,
                # What rates nodes apart from what a pod asks for: packing alone does that here.
                "score": PluginSet(disabled=("NodeResourcesBalancedAllocation", "ImageLocality")),
            },
            {
                "NodeResourcesFit": NodeResourcesFitArgs(
                    scoring_strategy=ScoringStrategy(type="MostAllocated")
                ),
                "PodTopologySpread": PodTopologySpreadArgs(defaulting_type="List"),
            },
        ),
        "default-scheduler": Base({MULTI_POINT: _MULTI}, as_kube=True),
    }
)
