"""Which plugins there are, and how a profile is made of their names.

A profile starts from a base: `agent`, the fast path's default, packs (small pods fill fragments, so that large
ones still find a whole node); `default-scheduler` has kube-scheduler's own plugins and weights. A `ProfileSpec`
then disables, enables and weighs plugins by name, as a KubeSchedulerConfiguration does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .framework import Filter, PreEnqueue, Profile, Score, WeightedScore
from .plugins.balanced_allocation import BalancedAllocation
from .plugins.node_affinity import NodeAffinity, NodeAffinityScore
from .plugins.node_name import NodeName
from .plugins.node_ports import NodePorts
from .plugins.node_resources_fit import LeastAllocated, MostAllocated, NodeResourcesFit
from .plugins.node_unschedulable import NodeUnschedulable
from .plugins.scheduling_gates import SchedulingGates
from .plugins.taint_toleration import TaintToleration

Args = Mapping[str, Any]


class ArgsError(ValueError):
    """An argument of a plugin or a plugin's name that means nothing. `path` is relative to the profile."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


def _no_args(args: Args) -> None:
    for key in args:
        raise ArgsError(key, "this plugin takes no arguments")


def _resources(args: Args, path: str) -> dict[str, int] | None:
    """`[{name, weight}]` as name -> weight. Raises `ArgsError`."""
    entries = args.get("resources")
    if entries is None:
        return None
    if not isinstance(entries, list) or not entries:
        raise ArgsError(f"{path}resources", "must be a list with at least one {name, weight}")
    weights: dict[str, int] = {}
    for index, entry in enumerate(entries):
        place = f"{path}resources[{index}]"
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            raise ArgsError(place, "must be {name: RESOURCE, weight: 1 to 100}")
        weight = entry.get("weight", 1)
        if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= 100:
            raise ArgsError(f"{place}.weight", f"{weight!r} is out of range; allowed: 1 to 100")
        unknown = set(entry) - {"name", "weight"}
        if unknown:
            raise ArgsError(f"{place}.{min(unknown)}", "unknown key; allowed: name, weight")
        weights[entry["name"]] = weight
    return weights


_STRATEGIES: dict[str, Callable[[dict[str, int] | None], Score]] = {
    "LeastAllocated": LeastAllocated,
    "MostAllocated": MostAllocated,
}


def _fit_score(args: Args) -> Score:
    strategy = args.get("scoringStrategy", {"type": "LeastAllocated"})
    for key in set(args) - {"scoringStrategy"}:
        raise ArgsError(key, "unknown argument; allowed: scoringStrategy")
    if not isinstance(strategy, Mapping):
        raise ArgsError("scoringStrategy", "must be {type, resources}")
    for key in set(strategy) - {"type", "resources"}:
        raise ArgsError(f"scoringStrategy.{key}", "unknown key; allowed: type, resources")
    kind = strategy.get("type", "LeastAllocated")
    if kind not in _STRATEGIES:
        raise ArgsError("scoringStrategy.type", f"{kind!r} is unknown; allowed: {', '.join(_STRATEGIES)}")
    return _STRATEGIES[kind](_resources(strategy, "scoringStrategy."))


def _balanced(args: Args) -> Score:
    for key in set(args) - {"resources"}:
        raise ArgsError(key, "unknown argument; allowed: resources")
    return BalancedAllocation(_resources(args, ""))


#: PreEnqueue plugins by name.
PRE_ENQUEUE: Mapping[str, Callable[[], PreEnqueue]] = {"SchedulingGates": SchedulingGates}

#: Filters by name, in the order in which they are asked; a node's first refusal is the one that is reported.
FILTERS: Mapping[str, Callable[[], Filter]] = {
    "NodeUnschedulable": NodeUnschedulable,
    "NodeName": NodeName,
    "TaintToleration": TaintToleration,
    "NodeAffinity": NodeAffinity,
    "NodePorts": NodePorts,
    "NodeResourcesFit": NodeResourcesFit,
}


def _plain(factory: Callable[[], Score]) -> Callable[[Args], Score]:
    def build(args: Args) -> Score:
        _no_args(args)
        return factory()

    return build


#: Scores by name, each made from its arguments.
SCORES: Mapping[str, Callable[[Args], Score]] = {
    "TaintToleration": _plain(TaintToleration),
    "NodeAffinity": _plain(NodeAffinityScore),
    "NodeResourcesFit": _fit_score,
    "NodeResourcesBalancedAllocation": _balanced,
}

#: Base profiles: weights of the scores, and arguments where they differ from a plugin's own defaults.
BASES: Mapping[str, tuple[Mapping[str, int], Mapping[str, Args]]] = {
    "agent": (
        {"TaintToleration": 3, "NodeAffinity": 2, "NodeResourcesFit": 1},
        {"NodeResourcesFit": {"scoringStrategy": {"type": "MostAllocated"}}},
    ),
    "default-scheduler": (
        {
            "TaintToleration": 3,
            "NodeAffinity": 2,
            "NodeResourcesFit": 1,
            "NodeResourcesBalancedAllocation": 1,
        },
        {},
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSpec:
    """A profile as a configuration names it. `"*"` among the disabled stands for all of the base."""

    scheduler_name: str
    base: str = "agent"
    disabled_filters: tuple[str, ...] = ()
    enabled_filters: tuple[str, ...] = ()
    disabled_scores: tuple[str, ...] = ()
    #: Name -> weight; overrides the base's weight.
    enabled_scores: Mapping[str, int] = field(default_factory=dict)
    #: Plugin name -> arguments; replaces those of the base.
    args: Mapping[str, Args] = field(default_factory=dict)


def build_profile(spec: ProfileSpec) -> Profile:
    """Raises `ArgsError` naming what in `spec` means nothing and what is allowed."""
    if spec.base not in BASES:
        raise ArgsError("base", f"{spec.base!r} is unknown; allowed: {', '.join(BASES)}")
    base_weights, base_args = BASES[spec.base]
    _known("plugins.filter.disabled", spec.disabled_filters, FILTERS, also="*")
    _known("plugins.filter.enabled", spec.enabled_filters, FILTERS)
    _known("plugins.score.disabled", spec.disabled_scores, SCORES, also="*")
    _known("plugins.score.enabled", tuple(spec.enabled_scores), SCORES)
    for index, name in enumerate(spec.args):
        if name not in FILTERS and name not in SCORES:
            allowed = ", ".join(sorted({*FILTERS, *SCORES}))
            raise ArgsError(f"pluginConfig[{index}].name", f"{name!r} is unknown; allowed: {allowed}")

    filters = set() if "*" in spec.disabled_filters else set(FILTERS) - set(spec.disabled_filters)
    filters |= set(spec.enabled_filters)
    weights = {
        name: weight
        for name, weight in base_weights.items()
        if "*" not in spec.disabled_scores and name not in spec.disabled_scores
    } | dict(spec.enabled_scores)
    scores = []
    for name, weight in weights.items():
        args = spec.args.get(name, base_args.get(name, {}))
        try:
            scores.append(WeightedScore(SCORES[name](args), weight))
        except ArgsError as error:
            raise ArgsError(f"pluginConfig[{name}].args.{error.path}", error.message) from None
    return Profile(
        scheduler_name=spec.scheduler_name,
        filters=tuple(factory() for name, factory in FILTERS.items() if name in filters),
        scores=tuple(scores),
        pre_enqueue=tuple(factory() for factory in PRE_ENQUEUE.values()),
    )


def _known(path: str, names: tuple[str, ...], table: Mapping[str, object], *, also: str = "") -> None:
    for index, name in enumerate(names):
        if name not in table and name != also:
            raise ArgsError(f"{path}[{index}]", f"{name!r} is unknown; allowed: {', '.join(table)}")
