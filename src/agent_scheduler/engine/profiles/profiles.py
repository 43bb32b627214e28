"""The registry of plugins, and the construction of a profile from their names.

A profile starts from a base: `agent`, the fast path's default, packs (small pods fill fragments, so that large ones
still find a whole node) and ranks mostly by the pod's own requests; `default-scheduler` has kube-scheduler 1.36's
plugins, weights and arguments. A `ProfileSpec` changes the base as a profile of a KubeSchedulerConfiguration changes
kube-scheduler's (`points`).

A plugin is added by one line of `REGISTRY`; a base already names it if kube-scheduler has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from ..framework.args import (
    BestFitArgs,
    DefaultPreemptionArgs,
    DotProductArgs,
    DynamicResourcesArgs,
    FragmentationArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PluginArgs,
    PodTopologySpreadArgs,
    VolumeBindingArgs,
)
from ..framework.plugin import Profile, Score, WeightedScore
from ..framework.points import ALL, MULTI_POINT, NOTHING, POINTS, PluginSet, PluginSets, expanded, merged, weight_of
from ..framework.registration import Factory, Registration, Registry
from ..plugins.balanced_allocation import BalancedAllocation
from ..plugins.best_fit import BestFit
from ..plugins.default_preemption import NAME as DEFAULT_PREEMPTION
from ..plugins.default_preemption import DefaultPreemption
from ..plugins.dot_product import DotProduct
from ..plugins.dynamic_resources import DynamicResources, DynamicResourcesScore
from ..plugins.fragmentation import Fragmentation
from ..plugins.gang_scheduling import GangScheduling
from ..plugins.gpu_packing import GPUPacking
from ..plugins.gpu_share import GPUShare
from ..plugins.image_locality import ImageLocality
from ..plugins.inter_pod_affinity import InterPodAffinity, InterPodAffinityScore
from ..plugins.node_affinity import NodeAffinity, NodeAffinityScore
from ..plugins.node_declared_features import NodeDeclaredFeatures
from ..plugins.node_name import NodeName
from ..plugins.node_ports import NodePorts
from ..plugins.node_resources_fit import LeastAllocated, MostAllocated, NodeResourcesFit, RequestedToCapacityRatio
from ..plugins.node_unschedulable import NodeUnschedulable
from ..plugins.node_volume_limits import NodeVolumeLimits
from ..plugins.pod_topology_spread import PodTopologySpread, PodTopologySpreadScore, default_spread
from ..plugins.scheduling_gates import SchedulingGates
from ..plugins.taint_toleration import TaintToleration
from ..plugins.volume_binding import VolumeBinding, VolumeBindingScore
from ..plugins.volume_restrictions import VolumeRestrictions
from ..plugins.volume_zone import VolumeZone
from ..rules.device_backed import ByFullness, DeviceBacked
from .bases import ABSENT, BASES, DEFAULT_PLUGINS, FIXED
from .guard import PluginError, guarded


class ProfileError(ValueError):
    """A profile that cannot be built. `path` is relative to the profile."""

    def __init__(self, path: tuple[str | int, ...], message: str) -> None:
        super().__init__(f"{'.'.join(map(str, path))}: {message}")
        self.path = path
        self.message = message


class UnknownPlugin(ProfileError):
    """An unknown name; `allowed` has the known ones."""

    def __init__(self, path: tuple[str | int, ...], name: str, allowed: tuple[str, ...]) -> None:
        super().__init__(path, f"{name!r} is unknown; allowed: {', '.join(allowed)}")
        self.name = name
        self.allowed = allowed


def _plain(make: Callable[[], object]) -> Factory:
    """Return the factory of a plugin without arguments."""
    return lambda _args: make()


def _built_in(_args: PluginArgs) -> object:
    """Return None: queue and binder implement this themselves, without a choice."""
    return None


_STRATEGIES: Mapping[str, Callable[[Mapping[str, int]], Score]] = {
    "LeastAllocated": LeastAllocated,
    "MostAllocated": MostAllocated,
}


def _fit(args: NodeResourcesFitArgs) -> object:
    return NodeResourcesFit(args.ignored_resources, args.ignored_resource_groups)


def _fit_score(args: NodeResourcesFitArgs) -> Score:
    strategy = args.scoring_strategy
    curve = strategy.requested_to_capacity_ratio
    if curve is not None:
        return RequestedToCapacityRatio([(at.utilization, at.score) for at in curve.shape], strategy.weights)
    return _STRATEGIES[strategy.type](strategy.weights)


def _balanced(args: NodeResourcesBalancedAllocationArgs) -> Score:
    return BalancedAllocation(args.names)


def _node_affinity(args: NodeAffinityArgs) -> object:
    return NodeAffinity(args.added_affinity)


def _node_affinity_score(args: NodeAffinityArgs) -> Score:
    return NodeAffinityScore(args.added_affinity)


def _inter_pod_affinity(args: InterPodAffinityArgs) -> Score:
    return InterPodAffinityScore(
        hard_pod_affinity_weight=args.hard_pod_affinity_weight,
        ignore_preferred_terms_of_existing_pods=args.ignore_preferred_terms_of_existing_pods,
    )


def _spread(args: PodTopologySpreadArgs) -> object:
    return PodTopologySpread(default_spread(args))


def _spread_score(args: PodTopologySpreadArgs) -> Score:
    return PodTopologySpreadScore(default_spread(args))


def _fragmentation(args: FragmentationArgs) -> Score:
    return Fragmentation(args.weights, args.given)


#: Every plugin of the scheduler itself.
REGISTRY: Final = Registry(
    (
        Registration("SchedulingGates", {"preEnqueue": _plain(SchedulingGates)}),
        Registration("PrioritySort", {"queueSort": _built_in}),
        Registration("NodeUnschedulable", {"filter": _plain(NodeUnschedulable)}),
        Registration("NodeName", {"filter": _plain(NodeName)}),
        Registration("TaintToleration", {"filter": _plain(TaintToleration), "score": _plain(TaintToleration)}),
        Registration("NodeAffinity", {"filter": _node_affinity, "score": _node_affinity_score}, NodeAffinityArgs),
        Registration("NodeDeclaredFeatures", {"filter": _plain(NodeDeclaredFeatures)}),
        Registration("NodePorts", {"filter": _plain(NodePorts)}),
        Registration("NodeResourcesFit", {"filter": _fit, "score": _fit_score}, NodeResourcesFitArgs),
        Registration("NodeResourcesBalancedAllocation", {"score": _balanced}, NodeResourcesBalancedAllocationArgs),
        Registration("VolumeRestrictions", {"filter": _plain(VolumeRestrictions)}),
        Registration("NodeVolumeLimits", {"filter": _plain(NodeVolumeLimits)}),
        Registration(
            "VolumeBinding",
            {**dict.fromkeys(("filter", "reserve", "preBind"), VolumeBinding), "score": VolumeBindingScore},
            VolumeBindingArgs,
        ),
        Registration("VolumeZone", {"filter": _plain(VolumeZone)}),
        Registration("ImageLocality", {"score": _plain(ImageLocality)}),
        Registration("PodTopologySpread", {"filter": _spread, "score": _spread_score}, PodTopologySpreadArgs),
        Registration(
            "InterPodAffinity", {"filter": _plain(InterPodAffinity), "score": _inter_pod_affinity}, InterPodAffinityArgs
        ),
        Registration(
            "DynamicResources",
            {
                **dict.fromkeys(("preEnqueue", "filter", "reserve", "preBind"), DynamicResources),
                "score": _plain(DynamicResourcesScore),
            },
            DynamicResourcesArgs,
        ),
        Registration("GPUShare", {"filter": _plain(GPUShare)}),
        Registration("Fragmentation", {"score": _fragmentation}, FragmentationArgs),
        Registration("BestFit", {"score": lambda args: BestFit(args.weights)}, BestFitArgs),
        Registration("DotProduct", {"score": lambda args: DotProduct(args.weights)}, DotProductArgs),
        Registration("GPUPacking", {"score": _plain(GPUPacking)}),
        Registration("DefaultPreemption", {"postFilter": DefaultPreemption}, DefaultPreemptionArgs),
        Registration("GangScheduling", {"preEnqueue": _plain(GangScheduling)}),
        Registration("DefaultBinder", {"bind": _built_in}),
    )
)

#: Extension point -> the field of `Profile` that has its plugins. Scores have weights and are created separately.
_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "preEnqueue": "pre_enqueue",
        "filter": "filters",
        "reserve": "reserves",
        "permit": "permits",
        "preBind": "pre_binds",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSpec:
    """A profile as a configuration describes it."""

    scheduler_name: str
    base: str = "agent"
    #: Extension point or `multiPoint` -> its plugins.
    plugins: PluginSets = field(default_factory=dict)
    #: Plugin name -> its arguments, which replace those of the base.
    args: Mapping[str, PluginArgs] = field(default_factory=dict)


def build_profile(spec: ProfileSpec, registry: Registry = REGISTRY) -> Profile:
    """Build a profile.

    Raises `ProfileError` with the invalid part of `spec` and the allowed values, or the broken plugin.
    """
    if spec.base not in BASES:
        raise ProfileError(("base",), f"{spec.base!r} is unknown; allowed: {', '.join(BASES)}")
    _check(spec, registry)
    base = BASES[spec.base]
    sets = {
        point: merged(base.plugins.get(point, NOTHING), spec.plugins.get(point, NOTHING))
        for point in (MULTI_POINT, *POINTS)
    }
    known = tuple(plugin for plugin in sets[MULTI_POINT].enabled if plugin.name in registry)
    multi = PluginSet(known, sets[MULTI_POINT].disabled)
    build = _Builder(spec, registry)

    def at(point: str) -> tuple[str, ...]:
        names = expanded(sets[point], multi, lambda name: registry[name].implements(point))
        fixed = (name for name in FIXED if name in registry and registry[name].implements(point))
        return (*names, *(name for name in fixed if name not in names))

    fields: dict[str, Any] = {
        field_name: tuple(build.plugin(name, point) for name in at(point)) for point, field_name in _FIELDS.items()
    }
    scores = _with_devices(
        WeightedScore(build.plugin(name, "score"), weight_of(name, sets["score"], multi)) for name in at("score")
    )
    preemption = DEFAULT_PREEMPTION in at("postFilter")
    return Profile(
        scheduler_name=spec.scheduler_name,
        scores=scores,
        preemption=build.plugin(DEFAULT_PREEMPTION, "postFilter") if preemption else None,
        as_kube=base.as_kube,
        **fields,
    )


def _with_devices(scores: Iterable[WeightedScore]) -> tuple[WeightedScore, ...]:
    """Return `scores`, each that counts extended resources followed by `DeviceBacked` for its remainder."""
    found = []
    for each in scores:
        found.append(each)
        if isinstance(each.plugin, ByFullness) and each.plugin.extended:
            found.append(WeightedScore(DeviceBacked(each.plugin), each.weight))
    return tuple(found)


class _Builder:
    """Creates the plugins of one profile; one object for several points with one factory."""

    def __init__(self, spec: ProfileSpec, registry: Registry) -> None:
        self._args = {**BASES[spec.base].args, **spec.args}
        self._registry = registry
        self._made: dict[tuple[str, int], Any] = {}

    def plugin(self, name: str, point: str) -> Any:
        registration = self._registry[name]
        factory = registration.points[point]
        key = (name, id(factory))
        if key not in self._made:
            args = self._args.get(name)
            try:
                made = factory(registration.args() if args is None else args)
                self._made[key] = guarded(made, registration) if registration.origin else made
            except PluginError as error:
                raise ProfileError(("pluginConfig", name), str(error)) from error
            except Exception as error:
                whose = f" (from {registration.origin})" if registration.origin else ""
                raise ProfileError(
                    ("pluginConfig", name), f"plugin {name}{whose} cannot be made: {type(error).__name__}: {error}"
                ) from error
        return self._made[key]


def _check(spec: ProfileSpec, registry: Registry) -> None:
    for point, chosen in spec.plugins.items():
        at = ("plugins", point)
        if point != MULTI_POINT and point not in POINTS:
            raise UnknownPlugin(at, point, (MULTI_POINT, *POINTS))
        allowed = registry.names(None if point == MULTI_POINT else point)
        for index, plugin in enumerate(chosen.enabled):
            if plugin.name not in allowed:
                raise _refusal((*at, "enabled", index, "name"), plugin.name, allowed, registry, point)
        for index, name in enumerate(chosen.disabled):
            path = (*at, "disabled", index, "name")
            if name in FIXED:
                raise ProfileError(path, f"{name} cannot be disabled: {FIXED[name]}")
            if name != ALL and name not in registry and not is_absent(name, registry):
                raise UnknownPlugin(path, name, (*registry.names(), ALL))
    for name, args in spec.args.items():
        known = registry.get(name)
        if known is None:
            raise UnknownPlugin(("pluginConfig", name, "name"), name, registry.names())
        if not isinstance(args, known.args):
            raise ProfileError(("pluginConfig", name, "args"), f"must be {known.args.__name__}")


def is_absent(name: str, registry: Registry = REGISTRY) -> bool:
    """Return whether kube-scheduler has a plugin of this name and the registry does not."""
    return name not in registry and (name in ABSENT or name in DEFAULT_PLUGINS)


def _refusal(
    path: tuple[str | int, ...], name: str, allowed: tuple[str, ...], registry: Registry, point: str
) -> ProfileError:
    if name in registry:
        return ProfileError(path, f"plugin {name} has nothing to do at {point}; allowed: {', '.join(allowed)}")
    if is_absent(name, registry):
        return ProfileError(path, f"plugin {name} is not available: {ABSENT.get(name, 'it does not exist here')}")
    return UnknownPlugin(path, name, allowed)
