"""Reads a Volcano scheduler configuration (`actions`, `tiers`, `configurations`) as one of our profiles.

Settings about nodes are translated: `predicates` into filters, `nodeorder` and `binpack` into scores with their
arguments. Settings about jobs and queues, which a profile does not have, are read with a warning if they only order
work, and rejected if pods would be placed elsewhere or too early. The batch scheduler reads the same file by other
rules (`batch`). In Volcano, `allocate` itself checks a node's resources, so NodeResourcesFit is always a filter;
NodeName, VolumeRestrictions and scheduling gates, which it ignores, are respected nevertheless.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_scheduler.config.schema import API_VERSION, KIND, Configuration
from agent_scheduler.config.volcano_args import Arguments, RequestedScore, boolean, combined, known, listed
from agent_scheduler.engine.framework.args import VolumeBindingArgs
from agent_scheduler.engine.profiles.profiles import REGISTRY
from apimachinery.codec import Warn, decode, decode_value, fields, suggest
from apimachinery.errors import Invalid, Path, found

_KEYS = ("actions", "tiers", "configurations", "metrics")

_ORDER_ONLY = "has no effect: a profile has no jobs and queues; its pods are tried by priority, then age"
_NO_JOBS = (
    "is not supported: a profile has no jobs and queues, and would place pods too early; for the batch "
    "scheduler use this file with --scheduler-conf"
)
_EVICTS = (
    "is not supported: a profile has no jobs and queues to evict from; for the batch scheduler use this file with "
    "--scheduler-conf"
)

#: Action -> why it has no effect; None if it is the existing behavior or is translated.
_ACTIONS: Mapping[str, str | None] = {
    "allocate": None,
    "preempt": None,
    "enqueue": "has no effect: every pod is tried on arrival",
    "backfill": "has no effect: pods without requests are tried like all others",
}
_REFUSED_ACTIONS = dict.fromkeys(("reclaim", "gangpreempt", "gangreclaim", "shuffle"), _EVICTS)

#: Plugin -> why it has no effect; empty if it is the existing behavior.
_IDLE_PLUGINS: Mapping[str, str] = {
    "priority": "",
    "pdb": "",
    "conformance": "has no effect: only their priority protects pods of kube-system",
    "drf": _ORDER_ONLY,
    "overcommit": _ORDER_ONLY,
    "sla": _ORDER_ONLY,
}
_OTHER_PLACES = "is not supported: without it pods would be placed elsewhere"
_REFUSED_PLUGINS: Mapping[str, str] = {
    **dict.fromkeys(("gang", "proportion", "capacity", "capacity-card", "resourcequota", "cdp"), _NO_JOBS),
    **dict.fromkeys(
        (
            *("numaaware", "deviceshare", "network-topology-aware", "task-topology", "tdm", "usage"),
            *("nodegroup", "rescheduling", "resource-strategy-fit", "extender"),
        ),
        _OTHER_PLACES,
    ),
}
_TRANSLATED = ("predicates", "nodeorder", "binpack")

#: Keys of a plugin that switch one of its functions; only two have an effect here.
_SWITCH = re.compile(r"[eE]nabled?[A-Z][A-Za-z]*")
_SWITCHES = {"predicates": "enablePredicate", "nodeorder": "enableNodeOrder", "binpack": "enableNodeOrder"}

#: Argument of predicates -> the plugin that it switches.
_PREDICATES: Mapping[str, str] = {
    "predicate.NodeAffinityEnable": "NodeAffinity",
    "predicate.NodePortsEnable": "NodePorts",
    "predicate.TaintTolerationEnable": "TaintToleration",
    "predicate.PodAffinityEnable": "InterPodAffinity",
    "predicate.NodeVolumeLimitsEnable": "NodeVolumeLimits",
    "predicate.VolumeZoneEnable": "VolumeZone",
    "predicate.PodTopologySpreadEnable": "PodTopologySpread",
    "predicate.VolumeBindingEnable": "VolumeBinding",
}
#: Plugins of kube-scheduler without an equivalent in Volcano.
_UNKNOWN = frozenset({"NodeDeclaredFeatures"})
#: Switches of missing functions: a warning or, if they would place pods elsewhere, a rejection when they are on.
_IDLE_PREDICATES: Mapping[str, str] = {
    "predicate.CacheEnable": "has no effect: results are always cached across pods",
    "predicate.DynamicResourceAllocationEnable": "has no effect: Volcano does not read it either",
}
_REFUSED_PREDICATES = ("predicate.ProportionalEnable", "predicate.GPUSharingEnable", "predicate.GPUNumberEnable")
_VOLUMES = {"volumebinding.bindTimeoutSeconds": "bindTimeoutSeconds", "volumebinding.shape": "shape"}
_VOLUME_WEIGHT = "volumebinding.weight"
_DRA_TIMEOUT = "dynamicresources.filterTimeoutSeconds"

#: Argument of nodeorder -> (plugin, default weight).
_ORDERS: Mapping[str, tuple[str, int]] = {
    "nodeaffinity.weight": ("NodeAffinity", 2),
    "podaffinity.weight": ("InterPodAffinity", 2),
    "balancedresource.weight": ("NodeResourcesBalancedAllocation", 1),
    "tainttoleration.weight": ("TaintToleration", 3),
    "imagelocality.weight": ("ImageLocality", 1),
    "podtopologyspread.weight": ("PodTopologySpread", 2),
}
_LEAST, _MOST = "leastrequested.weight", "mostrequested.weight"
_EVEN = {"cpu": 1, "memory": 1}
_BINPACK = ("binpack.weight", "binpack.cpu", "binpack.memory", "binpack.resources")


@dataclass(slots=True)
class _Profile:
    """The translation so far."""

    warn: Warn
    filters_off: set[str] = field(default_factory=set)
    weights: dict[str, int] = field(default_factory=dict)
    args: dict[str, dict[str, Any]] = field(default_factory=dict)
    wishes: list[RequestedScore] = field(default_factory=list)
    preempts: bool = False
    predicates: bool = False

    def plain(self) -> dict[str, Any]:
        """Return the profile as in a file."""
        off = _UNKNOWN | (
            self.filters_off if self.predicates else {"NodeUnschedulable", "DynamicResources", *_PREDICATES.values()}
        )
        plugins: dict[str, Any] = {
            "multiPoint": {"disabled": [{"name": name} for name in sorted(off) if name in REGISTRY]},
            "score": {
                "disabled": [{"name": "*"}],
                "enabled": [{"name": name, "weight": weight} for name, weight in self.weights.items()],
            },
        }
        if not self.preempts:
            plugins["postFilter"] = {"disabled": [{"name": "*"}]}
        config = [{"name": name, "args": args} for name, args in self.args.items() if name in REGISTRY]
        return {"base": "default-scheduler", "plugins": plugins, "pluginConfig": config}


def translated(data: Any, warn: Warn) -> Any:
    """Return `data` with a Volcano configuration, if any, translated to our form.

    Raises Invalid with its own places.
    """
    if not isinstance(data, dict) or not any(key in data for key in _KEYS):
        return data
    if data.get("profiles"):
        raise Invalid(("profiles",), "is set together with Volcano's actions and tiers; allowed: one of the forms")
    ours = {key: value for key, value in data.items() if key not in _KEYS}
    if "apiVersion" not in ours and "kind" not in ours:
        ours.update(apiVersion=API_VERSION, kind=KIND)
    profile = _Profile(warn)
    _actions(data.get("actions"), profile)
    _tiers(data.get("tiers"), profile)
    _configurations(data.get("configurations"), ours, warn)
    if data.get("metrics"):
        warn(("metrics",), "has no effect: metrics come from the API server alone")
    return {**ours, "profiles": [profile.plain()]}


def _actions(value: Any, profile: _Profile) -> None:
    at: Path = ("actions",)
    if not isinstance(value, str):
        raise Invalid(at, f"found {found(value)}; allowed: names separated by commas, such as 'allocate'")
    names = [name for name in (part.strip() for part in value.split(",")) if name]
    for name in names:
        if name in _REFUSED_ACTIONS:
            raise Invalid(at, f"{name} {_REFUSED_ACTIONS[name]}")
        if name not in _ACTIONS:
            raise Invalid(at, f"found {name!r}; {suggest(name, _ACTIONS)}")
        idle = _ACTIONS[name]
        if idle:
            profile.warn(at, f"{name} {idle}")
    if "allocate" not in names:
        raise Invalid(at, f"found {value!r}; allowed: a list with allocate, since otherwise no pod is placed")
    profile.preempts = "preempt" in names


def _tiers(value: Any, profile: _Profile) -> None:
    seen: set[str] = set()
    for tier, entry in enumerate(listed(value, ("tiers",))):
        at: Path = ("tiers", tier)
        known(entry, ("plugins",), at)
        for index, plugin in enumerate(listed(entry.get("plugins"), (*at, "plugins"))):
            name = _plugin(plugin, (*at, "plugins", index), profile)
            if name in seen:
                raise Invalid((*at, "plugins", index, "name"), f"found {name!r} a second time")
            seen.add(name)
    if not profile.predicates:
        profile.warn(("tiers",), "predicates is missing or off: only the free resources of nodes are checked")
    fit = combined(profile.wishes, profile.warn)
    if fit is not None:
        profile.weights["NodeResourcesFit"] = fit.weight
        profile.args["NodeResourcesFit"] = {"scoringStrategy": fit.strategy}


def _plugin(plugin: Any, at: Path, profile: _Profile) -> str:
    """Translate one plugin and return its name."""
    known(plugin, ("name", "arguments"), at, also=_SWITCH)
    name = plugin.get("name")
    names = {*_TRANSLATED, *_IDLE_PLUGINS, *_REFUSED_PLUGINS}
    if not isinstance(name, str) or name not in names:
        raise Invalid((*at, "name"), f"found {found(name)}; {suggest(str(name), names)}")
    if name in _REFUSED_PLUGINS:
        raise Invalid((*at, "name"), f"{name} {_REFUSED_PLUGINS[name]}")
    if name in _IDLE_PLUGINS:
        if _IDLE_PLUGINS[name]:
            profile.warn((*at, "name"), f"{name} {_IDLE_PLUGINS[name]}")
        return name
    on = True
    for key, value in plugin.items():
        if _SWITCH.fullmatch(key):
            if key == _SWITCHES[name]:
                on = boolean(value, (*at, key))
            else:
                profile.warn((*at, key), f"has no effect: {name} does nothing there")
    arguments = Arguments(plugin.get("arguments"), (*at, "arguments"))
    if name == "predicates":
        _predicates(arguments, profile, on=on)
    elif name == "nodeorder":
        _nodeorder(arguments, profile, on=on)
    else:
        _binpack(arguments, profile, on=on)
    arguments.check()
    return name


def _predicates(arguments: Arguments, profile: _Profile, *, on: bool) -> None:
    profile.predicates = on
    for key, plugin in _PREDICATES.items():
        if not arguments.switch(key, True):
            profile.filters_off.add(plugin)
    for key, why in _IDLE_PREDICATES.items():
        if arguments.switch(key, False):
            profile.warn((*arguments.at, key), why)
    for key in _REFUSED_PREDICATES:
        if arguments.switch(key, False):
            raise Invalid((*arguments.at, key), _OTHER_PLACES)
    if arguments.take(_DRA_TIMEOUT) is not None:
        profile.warn((*arguments.at, _DRA_TIMEOUT), "has no effect: the search for devices is limited by its steps")
    volumes = {}
    for key, name in _VOLUMES.items():
        value = arguments.take(key)
        if value is not None:
            try:
                decode({name: value}, VolumeBindingArgs)
            except Invalid as error:
                raise Invalid((*arguments.at, key, *error.path[1:]), error.message) from None
            volumes[name] = value
    if volumes:
        profile.args["VolumeBinding"] = volumes
    weight = arguments.number(_VOLUME_WEIGHT, 1)
    if weight and "shape" in volumes:
        _weigh("VolumeBinding", weight, (*arguments.at, _VOLUME_WEIGHT), profile)


def _nodeorder(arguments: Arguments, profile: _Profile, *, on: bool) -> None:
    least, most = arguments.number(_LEAST, 1), arguments.number(_MOST, 0)
    weights = {key: arguments.number(key, default) for key, (_, default) in _ORDERS.items()}
    if not on:
        return
    profile.wishes.append(RequestedScore(_LEAST, -least, _EVEN, (*arguments.at, _LEAST)))
    profile.wishes.append(RequestedScore(_MOST, most, _EVEN, (*arguments.at, _MOST)))
    for key, weight in weights.items():
        if weight:
            _weigh(_ORDERS[key][0], weight, (*arguments.at, key), profile)
    # As Volcano creates these plugins.
    profile.args["NodeResourcesBalancedAllocation"] = {
        "resources": [{"name": name} for name in ("cpu", "memory", "nvidia.com/gpu")]
    }
    profile.args["InterPodAffinity"] = {"hardPodAffinityWeight": 0}


def _weigh(plugin: str, weight: int, at: Path, profile: _Profile) -> None:
    if plugin in REGISTRY and REGISTRY[plugin].implements("score"):
        profile.weights[plugin] = weight
    else:
        profile.warn(at, f"has no effect: {plugin} ranks no nodes here")


def _binpack(arguments: Arguments, profile: _Profile, *, on: bool) -> None:
    weight = arguments.number(_BINPACK[0], 1)
    resources = {name: arguments.number(f"binpack.{name}", 1) for name in ("cpu", "memory")}
    more = arguments.take(_BINPACK[3])
    if more is not None and not isinstance(more, str):
        raise Invalid(
            (*arguments.at, _BINPACK[3]), f"found {found(more)}; allowed: names of resources separated by commas"
        )
    for name in filter(None, (part.strip() for part in (more or "").split(","))):
        resources[name] = arguments.number(f"{_BINPACK[3]}.{name}", 1)
    if on:
        profile.wishes.append(RequestedScore(_BINPACK[0], weight, resources, (*arguments.at, _BINPACK[0])))


def _configurations(value: Any, ours: dict[str, Any], warn: Warn) -> None:
    for index, entry in enumerate(listed(value, ("configurations",))):
        at: Path = ("configurations", index)
        known(entry, ("name", "arguments"), at)
        name = entry.get("name")
        names = {*_ACTIONS, *_REFUSED_ACTIONS}
        if not isinstance(name, str) or name not in names:
            raise Invalid((*at, "name"), f"found {found(name)}; {suggest(str(name), names)}")
        if name != "allocate":
            warn((*at, "name"), f"has no effect: {name} takes no arguments here")
            continue
        arguments = Arguments(entry.get("arguments"), (*at, "arguments"))
        count = arguments.take("candidateNodeCount")
        if count is not None:
            path = (*arguments.at, "candidateNodeCount")
            decode_value(count, fields(Configuration)["candidateNodeCount"], path)
            if ours.setdefault("candidateNodeCount", count) != count:
                raise Invalid(path, f"found {found(count)}, but candidateNodeCount says otherwise")
        if arguments.take("predicateErrorCacheEnable") is not None:
            warn((*arguments.at, "predicateErrorCacheEnable"), "has no effect: results are always cached across pods")
        arguments.check()
