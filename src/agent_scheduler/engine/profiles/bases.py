"""The base profiles, and the plugins that a profile cannot change.

They name all plugins of kube-scheduler; those that are not in the registry are left out of a profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from ..framework.args import NodeResourcesFitArgs, PluginArgs, PodTopologySpreadArgs, ScoringStrategy
from ..framework.points import MULTI_POINT, Enabled, PluginSet, PluginSets

#: Plugins that every profile has, with the reason.
FIXED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "SchedulingGates": "the API server refuses to bind a pod with scheduling gates",
        "PrioritySort": "the queue orders pods by priority, then age, and has no other order",
        "GPUShare": "the ledger assigns a pod's GPUs with its amounts, so some must have room",
        "DefaultBinder": "only the binder keeps workers from taking the same room twice",
    }
)

#: Explanations of plugins that kube-scheduler has and the registry does not, unless the name is enough.
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
    """The starting point of a profile. Arguments that are not here are the plugins' own defaults."""

    plugins: PluginSets
    args: Mapping[str, PluginArgs] = field(default_factory=dict)
    #: See `Profile.as_kube`.
    as_kube: bool = False


#: The plugins of kube-scheduler 1.36, in its order.
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
                # These scores rate nodes independently of the pod's requests, and would override packing.
                "score": PluginSet(disabled=("NodeResourcesBalancedAllocation", "ImageLocality")),
            },
            {
                "NodeResourcesFit": NodeResourcesFitArgs(scoring_strategy=ScoringStrategy(type="MostAllocated")),
                "PodTopologySpread": PodTopologySpreadArgs(defaulting_type="List"),
            },
        ),
        "default-scheduler": Base({MULTI_POINT: _MULTI}, as_kube=True),
    }
)
