"""Builds the profile of a session from the plugins of the fast path and the session's configuration.

Volcano's predicates, nodeorder and binpack run kube-scheduler's plugins with their own weights
(`pkg/scheduler/plugins/predicates`, `nodeorder`, `binpack`). NodeResourcesFit is always enabled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..framework.args import VolumeBindingArgs
from ..framework.plugin import Filter, Profile, Score, WeightedScore
from ..framework.prebind import PreBind, Reserve
from ..plugins.balanced_allocation import BalancedAllocation
from ..plugins.binpack import PER_POINT, Binpack
from ..plugins.dynamic_resources import DynamicResources
from ..plugins.gpu_share import GPUShare
from ..plugins.image_locality import ImageLocality
from ..plugins.inter_pod_affinity import InterPodAffinity, InterPodAffinityScore
from ..plugins.node_affinity import NodeAffinity, NodeAffinityScore
from ..plugins.node_ports import NodePorts
from ..plugins.node_resources_fit import LeastAllocated, MostAllocated, NodeResourcesFit
from ..plugins.node_unschedulable import NodeUnschedulable
from ..plugins.node_volume_limits import NodeVolumeLimits
from ..plugins.pod_topology_spread import PodTopologySpread, PodTopologySpreadScore
from ..plugins.taint_toleration import TaintToleration
from ..plugins.volume_binding import VolumeBinding
from ..plugins.volume_restrictions import VolumeRestrictions
from ..plugins.volume_zone import VolumeZone
from ..profiles.profiles import REGISTRY
from .conf import PluginOption, SessionConf
from .registry import READS

#: The weights of nodeorder, with Volcano's defaults.
WEIGHTS: Final[Mapping[str, int]] = {
    "leastrequested.weight": 1,
    "mostrequested.weight": 0,
    "nodeaffinity.weight": 2,
    "podaffinity.weight": 2,
    "balancedresource.weight": 1,
    "tainttoleration.weight": 3,
    "imagelocality.weight": 1,
    "podtopologyspread.weight": 2,
}
_BALANCED: Final = ("cpu", "memory", "nvidia.com/gpu")


def profile_of(conf: SessionConf, scheduler_name: str) -> Profile:
    """Return the profile for a session's configuration."""
    filters: list[Filter] = [NodeResourcesFit()]
    scores: list[WeightedScore] = []
    reserves: list[Reserve] = []
    pre_binds: list[PreBind] = []
    predicates = conf.option("predicates")
    if predicates is not None and predicates.enabled("enablePredicate"):
        filters += _filters(predicates)
        taking = [each for each in filters if isinstance(each, VolumeBinding | DynamicResources)]
        reserves += taking
        pre_binds += taking
    filters.append(GPUShare())
    order = conf.option("nodeorder")
    if order is not None and order.enabled("enableNodeOrder"):
        scores += _scores(order.arguments)
    binpack = conf.option("binpack")
    if binpack is not None and binpack.enabled("enableNodeOrder"):
        scores += _binpack(binpack.arguments)
    return Profile(
        scheduler_name=scheduler_name,
        filters=tuple(filters),
        scores=tuple(scores),
        per_point=PER_POINT,
        reserves=tuple(reserves),
        pre_binds=tuple(pre_binds),
        of_groups=tuple((each.name, READS.get(each.name, frozenset())) for tier in conf.tiers for each in tier),
    )


def _filters(option: PluginOption) -> list[Filter]:
    """Return the filters in Volcano's order; the first that rejects a node determines its message."""
    switched: tuple[tuple[str, Filter], ...] = (
        ("", NodeUnschedulable()),
        ("NodeAffinityEnable", NodeAffinity(narrows=False)),
        ("TaintTolerationEnable", TaintToleration()),
        ("NodePortsEnable", NodePorts()),
        ("PodAffinityEnable", InterPodAffinity()),
        ("NodeVolumeLimitsEnable", NodeVolumeLimits()),
        ("VolumeZoneEnable", VolumeZone()),
        ("PodTopologySpreadEnable", PodTopologySpread()),
        ("VolumeBindingEnable", VolumeRestrictions()),
        ("VolumeBindingEnable", _volume_binding()),
        ("", DynamicResources()),
    )
    return [each for switch, each in switched if not switch or _switched_on(option, switch)]


def _volume_binding() -> Any:
    """Return the plugin VolumeBinding; one object is its filter, Reserve and PreBind."""
    return REGISTRY["VolumeBinding"].points["filter"](VolumeBindingArgs())


def _switched_on(option: PluginOption, switch: str) -> bool:
    given = option.arguments.get(f"predicate.{switch}", True)
    return given if isinstance(given, bool) else str(given).lower() in ("1", "t", "true")


def _scores(arguments: Mapping[str, Any]) -> list[WeightedScore]:
    plugins: dict[str, Score] = {
        "imagelocality.weight": ImageLocality(),
        "leastrequested.weight": LeastAllocated({"cpu": 50, "memory": 50}),
        "mostrequested.weight": MostAllocated({"cpu": 1, "memory": 1}),
        "balancedresource.weight": BalancedAllocation(_BALANCED),
        "nodeaffinity.weight": NodeAffinityScore(),
        "podaffinity.weight": InterPodAffinityScore(),
        "tainttoleration.weight": TaintToleration(),
        "podtopologyspread.weight": PodTopologySpreadScore(),
    }
    found = []
    for key, plugin in plugins.items():
        weight = int(arguments.get(key, WEIGHTS[key]))
        if weight:
            found.append(WeightedScore(plugin, weight * PER_POINT))
    return found


def _binpack(arguments: Mapping[str, Any]) -> list[WeightedScore]:
    weight = int(arguments.get("binpack.weight", 1))
    if not weight:
        return []
    named = [each.strip() for each in str(arguments.get("binpack.resources") or "").split(",")]
    keys = {each: f"binpack.resources.{each}" for each in named if each}
    keys |= {"cpu": "binpack.cpu", "memory": "binpack.memory"}
    weights = {resource: int(arguments.get(key, 1)) for resource, key in keys.items()}
    return [WeightedScore(Binpack({name: each if each >= 0 else 1 for name, each in weights.items()}), weight)]
