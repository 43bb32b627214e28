"""The arguments of the plugins: kube-scheduler's names, defaults and bounds (its 1.36 `*Args` kinds).

The structs are the schema: a file is checked against their types, so a wrong type, an unknown key and a number out of
bounds are reported in the same way for all plugins. Other rules are in `__post_init__`, which raises `ArgsError` with
the path. An existing struct holds valid arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Annotated, Literal

from msgspec import Meta, Struct

from agent_scheduler.objects.wire import NodeAffinity
from apimachinery.quantity import QuantityError, resource_value
from apimachinery.wire import Quantity as QuantityOfPods

from ..state.gpus import RESOURCE as GPU
from ..state.gpus import problem_with
from ..state.podspec import SpecError, check_node_affinity
from ..state.targetworkload import TargetPodKind, kind_of

#: A label key, as in the names of resources and topologies: an optional DNS prefix, then up to 63 characters.
_PREFIX = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"

Percent = Annotated[int, Meta(ge=0, le=100)]
Count = Annotated[int, Meta(ge=0)]
#: Seconds; a Go duration in a file.
Duration = Annotated[float, Meta(ge=0, extra={"duration": True})]
LabelKey = Annotated[
    str, Meta(pattern=rf"^({_PREFIX}/)?{_WORD}$", extra={"allowed": "a label key, such as example.com/name or name"})
]
#: The amount of a resource, parsed as in pods.
Quantity = Annotated[QuantityOfPods, Meta(extra={"quantity": True})]
Group = Annotated[str, Meta(pattern=rf"^{_WORD}$", extra={"allowed": "the part of a resource's name before the /"})]


class ArgsError(ValueError):
    """Arguments that contradict one another. `path` is relative to the struct that raised it."""

    def __init__(self, path: tuple[str | int, ...], message: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message


class PluginArgs(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of every plugin's arguments, including plugins of other distributions.

    Itself: a plugin without arguments.
    """


def _check_shape(shape: tuple[UtilizationShapePoint, ...], path: tuple[str, ...]) -> None:
    if not shape:
        raise ArgsError(path, "found an empty list; allowed: at least one {utilization, score}")
    for index, (before, point) in enumerate(pairwise(shape), start=1):
        if point.utilization <= before.utilization:
            raise ArgsError(
                (*path, index, "utilization"),
                f"found the number {point.utilization}; allowed: more than that of the point before "
                f"({before.utilization})",
            )


def _once(keys: Iterable[tuple[str, ...]], path: tuple[str, ...], field: str) -> None:
    seen = set()
    for index, key in enumerate(keys):
        if key in seen:
            at: tuple[str | int, ...] = (*path, index, field) if field else (*path, index)
            raise ArgsError(at, f"found {', '.join(map(repr, key))} a second time")
        seen.add(key)


def _check_affinity(affinity: NodeAffinity | None, field: str) -> None:
    try:
        check_node_affinity(affinity, field)
    except SpecError as error:
        place, _, message = str(error).partition(": ")
        raise ArgsError((place,), message) from None


class ResourceSpec(PluginArgs, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, extra={"allowed": "a resource's name"})]
    #: 0 counts as 1, the default.
    weight: Percent = 1


class UtilizationShapePoint(PluginArgs, frozen=True, kw_only=True):
    utilization: Percent
    score: Annotated[int, Meta(ge=0, le=10)]


class RequestedToCapacityRatioParam(PluginArgs, frozen=True, kw_only=True):
    shape: tuple[UtilizationShapePoint, ...]

    def __post_init__(self) -> None:
        _check_shape(self.shape, ("shape",))


DEFAULT_RESOURCES = (ResourceSpec(name="cpu"), ResourceSpec(name="memory"))


def _weights(resources: Iterable[ResourceSpec]) -> Mapping[str, int]:
    """Return resource -> weight."""
    return {spec.name: spec.weight or 1 for spec in resources}


class ScoringStrategy(PluginArgs, frozen=True, kw_only=True):
    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]
    #: An empty list means the default.
    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None

    def __post_init__(self) -> None:
        _once(((spec.name,) for spec in self.resources), ("resources",), "name")
        ratio = ("requestedToCapacityRatio",)
        if self.type == "RequestedToCapacityRatio":
            if self.requested_to_capacity_ratio is None:
                raise ArgsError(ratio, "is missing; allowed with this type: {shape: [{utilization, score}]}")
        elif self.requested_to_capacity_ratio is not None:
            raise ArgsError(ratio, f"has no meaning with type {self.type}; leave it out")

    @property
    def weights(self) -> Mapping[str, int]:
        """Resource -> weight."""
        return _weights(self.resources or DEFAULT_RESOURCES)


class NodeResourcesFitArgs(PluginArgs, frozen=True, kw_only=True):
    #: Extended resources that the filter ignores.
    ignored_resources: tuple[LabelKey, ...] = ()
    #: Ignores all extended resources whose name begins with one of these and a slash.
    ignored_resource_groups: tuple[Group, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy(type="LeastAllocated")


class NodeResourcesBalancedAllocationArgs(PluginArgs, frozen=True, kw_only=True):
    #: An empty list means the default.
    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES

    def __post_init__(self) -> None:
        _once(((spec.name,) for spec in self.resources), ("resources",), "name")
        for index, spec in enumerate(self.resources):
            if spec.weight > 1:
                raise ArgsError(
                    ("resources", index, "weight"),
                    f"found the number {spec.weight}; allowed: 1: balance has no weights",
                )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.resources or DEFAULT_RESOURCES)


#: The resources of nodes of different sizes that count. GPUs have no effect if no node has any.
PACKED_RESOURCES = (*DEFAULT_RESOURCES, ResourceSpec(name=GPU))


class PackingArguments(PluginArgs, frozen=True, kw_only=True):
    #: An empty list means the default.
    resources: tuple[ResourceSpec, ...] = PACKED_RESOURCES

    def __post_init__(self) -> None:
        _once(((spec.name,) for spec in self.resources), ("resources",), "name")

    @property
    def weights(self) -> Mapping[str, int]:
        """Resource -> weight."""
        return _weights(self.resources or PACKED_RESOURCES)


class BestFitArgs(PackingArguments, frozen=True, kw_only=True):
    """The arguments of packing."""


class DotProductArgs(PackingArguments, frozen=True, kw_only=True):
    """The arguments of packing."""


class TargetPod(PluginArgs, frozen=True, kw_only=True):
    """One kind of pods of a target workload."""

    #: Resource -> quantity of the whole pod.
    requests: Mapping[str, Quantity]
    node_selector: Mapping[str, str] = {}
    #: Its required terms restrict the nodes of the pod.
    node_affinity: NodeAffinity | None = None
    #: The relative number of these pods.
    weight: Annotated[float, Meta(gt=0)] = 1

    def __post_init__(self) -> None:
        if not self.requests:
            raise ArgsError(("requests",), "found nothing; allowed: at least one resource and its quantity")
        for name, quantity in self.requests.items():
            try:
                amount = resource_value(name, quantity)
            except QuantityError as error:
                raise ArgsError(("requests", name), f"{error}") from None
            if amount < 0:
                raise ArgsError(("requests", name), f"found {quantity}; allowed: 0 or more")
            if name == GPU and (problem := problem_with(amount)):
                raise ArgsError(("requests", name), problem.removeprefix(f"{GPU}: "))
        _check_affinity(self.node_affinity, "nodeAffinity")

    @property
    def kind(self) -> TargetPodKind:
        amounts = {name: resource_value(name, quantity) for name, quantity in self.requests.items()}
        selector = None if self.node_affinity is None else self.node_affinity.required
        return kind_of(amounts, self.node_selector, selector)


class FragmentationArgs(PluginArgs, frozen=True, kw_only=True):
    #: The resources that count on nodes without GPUs. An empty list means the default.
    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES
    #: The pods that are expected; if empty, they are estimated from those that have arrived.
    target_workload: tuple[TargetPod, ...] = ()

    def __post_init__(self) -> None:
        _once(((spec.name,) for spec in self.resources), ("resources",), "name")

    @property
    def weights(self) -> Mapping[str, int]:
        """Resource -> weight."""
        return _weights(self.resources or DEFAULT_RESOURCES)

    @property
    def given(self) -> list[tuple[TargetPodKind, float]]:
        """The target workload, each kind with its share."""
        total = sum(pod.weight for pod in self.target_workload)
        return [(pod.kind, pod.weight / total) for pod in self.target_workload]


class NodeAffinityArgs(PluginArgs, frozen=True, kw_only=True):
    #: Applies to every pod of the profile, in addition to its own affinity.
    added_affinity: NodeAffinity | None = None

    def __post_init__(self) -> None:
        _check_affinity(self.added_affinity, "addedAffinity")


class InterPodAffinityArgs(PluginArgs, frozen=True, kw_only=True):
    #: The weight of a running pod's required affinity for the pods that it matches.
    hard_pod_affinity_weight: Percent = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class DefaultConstraint(PluginArgs, frozen=True, kw_only=True):
    """A topology spread constraint for pods without one. Its selector is that of a pod's services and owners."""

    max_skew: Annotated[int, Meta(ge=1)]
    topology_key: LabelKey
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    min_domains: Annotated[int, Meta(ge=1)] | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    node_taints_policy: Literal["Honor", "Ignore"] | None = None


class PodTopologySpreadArgs(PluginArgs, frozen=True, kw_only=True):
    default_constraints: tuple[DefaultConstraint, ...] = ()
    #: System: by hostname with a skew of 3 and by zone with 5, both ScheduleAnyway. List: `default_constraints`.
    defaulting_type: Literal["System", "List"] = "System"

    def __post_init__(self) -> None:
        at = "defaultConstraints"
        if self.default_constraints and self.defaulting_type == "System":
            raise ArgsError((at,), "are used with defaultingType: List only; give it, or leave them out")
        _once(((each.topology_key, each.when_unsatisfiable) for each in self.default_constraints), (at,), "")


class VolumeBindingArgs(PluginArgs, frozen=True, kw_only=True):
    #: The seconds that PreBind waits for volumes to be bound.
    bind_timeout_seconds: Count = 600
    #: The score of a node by the share of its storage that would be used; None: volumes do not count in scores.
    shape: tuple[UtilizationShapePoint, ...] | None = None

    def __post_init__(self) -> None:
        if self.shape is not None:
            _check_shape(self.shape, ("shape",))


class DynamicResourcesArgs(PluginArgs, frozen=True, kw_only=True):
    #: The seconds after which a pod's search for devices ends; 0 for no limit.
    filter_timeout: Duration = 10.0
    #: The seconds that PreBind waits for devices to become ready (`bindingConditions`).
    binding_timeout: Duration = 600.0


class DefaultPreemptionArgs(PluginArgs, frozen=True, kw_only=True):
    #: Candidates to search: this share of all nodes, but at least the absolute number.
    min_candidate_nodes_percentage: Percent = 10
    min_candidate_nodes_absolute: Count = 100

    def __post_init__(self) -> None:
        if not self.min_candidate_nodes_percentage and not self.min_candidate_nodes_absolute:
            raise ArgsError(
                ("minCandidateNodesPercentage",),
                "found 0, and minCandidateNodesAbsolute is 0, too; allowed: one of them above 0",
            )
