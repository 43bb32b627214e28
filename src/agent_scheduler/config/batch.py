"""The batch scheduler's settings in the form of Volcano's file (`pkg/scheduler/conf`).

The file has `actions`, `tiers` of plugins, and `configurations` of actions. Volcano ignores unknown arguments and
only logs unknown plugins. Here both are rejected by name, because an operator would otherwise run without an intended
rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, field
from msgspec.structs import fields

from agent_scheduler.config.volcano_args import Arguments, boolean
from agent_scheduler.engine.session.conf import PluginOption, SessionConf
from apimachinery.codec import Warn, decode, suggest
from apimachinery.errors import Invalid, Path, found
from apimachinery.values import LIVE, Duration, Name, Section, flag

#: Volcano's defaults (`pkg/scheduler/util.go`, `defaultSchedulerConf`).
DEFAULT_ACTIONS: Final = "enqueue, allocate, backfill"

ACTIONS: Final = ("enqueue", "allocate", "backfill", "preempt", "reclaim")
_REFUSED_ACTIONS: Mapping[str, str] = {
    "gangpreempt": "is not supported: preempt already evicts whole gangs or their pods above the minimum",
    "gangreclaim": "is not supported: reclaim already evicts whole gangs or their pods above the minimum",
    "shuffle": "is not supported: running pods are evicted for others alone",
}

_NO_RULE = "is not supported: without its rule pods would be placed elsewhere"
_NO_ORDER = "is not supported: without its rule other jobs would come first"
_REFUSED_PLUGINS: Mapping[str, str] = {
    **dict.fromkeys(
        ("numaaware", "task-topology", "network-topology-aware", "nodegroup", "deviceshare", "usage"), _NO_RULE
    ),
    **dict.fromkeys(("tdm", "cdp", "rescheduling", "extender", "jobflow"), _NO_ORDER),
    "resource-strategy-fit": _NO_RULE,
    "capacity-card": "is not supported: see capacity",
}

#: Argument -> its type: "switch", "weight", "factor" (1 or more), "names", "duration".
_WEIGHTS: Mapping[str, str] = dict.fromkeys(
    (
        "nodeaffinity.weight",
        "podaffinity.weight",
        "leastrequested.weight",
        "balancedresource.weight",
        "mostrequested.weight",
        "tainttoleration.weight",
        "imagelocality.weight",
        "podtopologyspread.weight",
    ),
    "weight",
)
_SWITCHES: Mapping[str, str] = dict.fromkeys(
    (
        *("predicate.NodeAffinityEnable", "predicate.NodePortsEnable", "predicate.TaintTolerationEnable"),
        *("predicate.PodAffinityEnable", "predicate.NodeVolumeLimitsEnable", "predicate.VolumeZoneEnable"),
        *("predicate.PodTopologySpreadEnable", "predicate.VolumeBindingEnable"),
    ),
    "switch",
)
#: Switches of predicates without effect, with the reason.
_IDLE_SWITCHES: Mapping[str, str] = {
    "predicate.CacheEnable": "has no effect: results are always cached across pods",
    "predicate.DynamicResourceAllocationEnable": "has no effect: resource claims are always allocated",
}
#: Plugin -> its arguments.
PLUGINS: Mapping[str, Mapping[str, str]] = {
    "priority": {},
    "gang": {},
    "conformance": {},
    "overcommit": {"overcommit-factor": "factor"},
    "drf": {},
    "predicates": {**_SWITCHES, **dict.fromkeys(_IDLE_SWITCHES, "switch")},
    "proportion": {},
    "capacity": {"ancestorReclaimLevel": "weight"},
    "nodeorder": _WEIGHTS,
    "binpack": {
        "binpack.weight": "weight",
        "binpack.cpu": "weight",
        "binpack.memory": "weight",
        "binpack.resources": "names",
    },
    "pdb": {},
    "resourcequota": {},
    "sla": {"sla-waiting-time": "duration"},
}
#: The prefix of arguments for the single resources in `binpack.resources`.
_BINPACK_RESOURCE = "binpack.resources."


class TierPlugin(Section, frozen=True, kw_only=True):
    """A plugin of a tier. A missing switch is on, except for `enableHierarchy`."""

    name: Name
    enable_job_order: bool | None = None
    enable_sub_job_order: bool | None = None
    enable_hierarchy: bool | None = None
    enable_job_ready: bool | None = None
    enable_sub_job_ready: bool | None = None
    enable_job_pipelined: bool | None = None
    enable_sub_job_pipelined: bool | None = None
    enable_task_order: bool | None = None
    enable_preemptable: bool | None = None
    enable_reclaimable: bool | None = None
    enable_preemptive: bool | None = None
    enable_queue_order: bool | None = None
    enable_predicate: bool | None = None
    enable_best_node: bool | None = None
    enable_node_order: bool | None = None
    enable_target_job: bool | None = None
    enable_reserved_nodes: bool | None = None
    enable_job_enqueued: bool | None = None
    enabled_victim: bool | None = None
    enable_job_starving: bool | None = None
    enabled_overused: bool | None = None
    enabled_allocatable: bool | None = None
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def option(self) -> PluginOption:
        """The plugin with the specified switches, by their keys in a file."""
        switches = {each.encode_name: value for each in _FIELDS if isinstance(value := getattr(self, each.name), bool)}
        return PluginOption(self.name, self.arguments, switches)


#: Computed once, because that costs as much as reading the rest of a configuration.
_FIELDS: Final = fields(TierPlugin)


class Tier(Section, frozen=True, kw_only=True):
    """Plugins that vote together: if a tier decides, later ones are not consulted."""

    plugins: tuple[TierPlugin, ...] = ()


class ActionOption(Section, frozen=True, kw_only=True):
    name: Name
    arguments: dict[str, Any] = field(default_factory=dict)


def _tier(*names: str) -> Tier:
    return Tier(plugins=tuple(TierPlugin(name=name) for name in names))


#: Volcano's defaults (`pkg/scheduler/util.go`, `defaultSchedulerConf`).
DEFAULT_TIERS: Final = (
    _tier("priority", "gang", "conformance"),
    _tier("overcommit", "drf", "predicates", "proportion", "nodeorder"),
)


class SessionsFile(Section, frozen=True, kw_only=True):
    """The content of Volcano's file."""

    actions: str = DEFAULT_ACTIONS
    tiers: tuple[Tier, ...] = DEFAULT_TIERS
    configurations: tuple[ActionOption, ...] = ()


class Batch(SessionsFile, frozen=True, kw_only=True):
    """The scheduling of pods in sessions: in gangs, from queues. Without this section there are no sessions."""

    actions: Annotated[str, LIVE] = DEFAULT_ACTIONS
    tiers: Annotated[tuple[Tier, ...], LIVE] = DEFAULT_TIERS
    configurations: Annotated[tuple[ActionOption, ...], LIVE] = ()
    scheduler_name: Name = "volcano"
    schedule_period: Annotated[
        float,
        Meta(gt=0, extra={"duration": True}),
        flag("--schedule-period", "the minimum time between the starts of two sessions", "DURATION"),
    ] = 1.0
    #: `queue`: a group is admitted to its queue when the queue's declared capacity has room for it, so that an
    #: autoscaler learns which nodes it lacks. `cluster`: as in Volcano, the existing nodes must have room, too.
    enqueue_by: Literal["queue", "cluster"] = "queue"
    default_queue: Annotated[Name, flag("--default-queue", "the queue of groups without a queue", "QUEUE")] = "default"

    #: If off, a gang that is larger than its queue's share waits beside idle nodes, as in Volcano.
    work_conserving: Annotated[bool, LIVE] = True

    @property
    def sessions(self) -> SessionConf:
        """The configuration of its sessions."""
        return SessionConf(
            actions=tuple(_named(self.actions)),
            tiers=tuple(tuple(each.option for each in tier.plugins) for tier in self.tiers),
            configurations={each.name: each.arguments for each in self.configurations},
            enqueue_by=self.enqueue_by,
            work_conserving=self.work_conserving,
        )


def check_sessions(given: SessionsFile, warn: Warn, at: Path) -> None:
    """Check the settings at the path `at`. Raises Invalid for the first invalid name, argument or combination."""
    actions = list(_named(given.actions))
    for name in actions:
        if name in _REFUSED_ACTIONS:
            raise Invalid((*at, "actions"), f"{name} {_REFUSED_ACTIONS[name]}")
        if name not in ACTIONS:
            raise Invalid((*at, "actions"), f"found {name!r}; {suggest(name, ACTIONS)}")
        if actions.count(name) > 1:
            raise Invalid((*at, "actions"), f"found {name!r} a second time")
    if "allocate" not in actions:
        warn((*at, "actions"), "has no allocate: only pods without requests are placed, by backfill")
    seen: dict[str, TierPlugin] = {}
    for tier, index, option in _options(given):
        place = (*at, "tiers", tier, "plugins", index)
        _check_plugin(option, place)
        for key in _IDLE_SWITCHES.keys() & option.arguments.keys():
            warn((*place, "arguments", key), _IDLE_SWITCHES[key])
        if option.name in seen:
            raise Invalid((*place, "name"), f"found {option.name!r} a second time")
        seen[option.name] = option
    _check_together(seen, (*at, "tiers"), warn)
    for index, each in enumerate(given.configurations):
        if each.name not in ACTIONS:
            raise Invalid((*at, "configurations", index, "name"), f"found {each.name!r}; {suggest(each.name, ACTIONS)}")
        for key in each.arguments:
            warn((*at, "configurations", index, "arguments", key), "has no effect")


def _options(given: SessionsFile) -> Iterator[tuple[int, int, TierPlugin]]:
    for tier, plugins in enumerate(given.tiers):
        for index, option in enumerate(plugins.plugins):
            yield tier, index, option


def _named(actions: str) -> Iterator[str]:
    return filter(None, (part.strip() for part in actions.split(",")))


def _check_plugin(option: TierPlugin, at: Path) -> None:
    name = option.name
    if name in _REFUSED_PLUGINS:
        raise Invalid((*at, "name"), f"{name} {_REFUSED_PLUGINS[name]}")
    if name not in PLUGINS:
        raise Invalid((*at, "name"), f"found {name!r}; {suggest(name, PLUGINS)}")
    if option.enable_hierarchy and name == "drf":
        raise Invalid((*at, "enableHierarchy"), "hierarchical drf is not supported; see capacity with enableHierarchy")
    arguments = Arguments(option.arguments, (*at, "arguments"))
    for key, kind in PLUGINS[name].items():
        _check_argument(arguments, key, kind)
    if name == "binpack":
        for resource in _resources(option):
            arguments.number(_BINPACK_RESOURCE + resource, 1)
    arguments.check()


def _resources(option: TierPlugin) -> Iterator[str]:
    return _named(str(option.arguments.get("binpack.resources") or ""))


def _check_argument(arguments: Arguments, key: str, kind: str) -> None:
    place = (*arguments.at, key)
    if kind == "weight":
        arguments.number(key, 0)
        return
    value = arguments.take(key)
    if value is None:
        return
    if kind == "switch":
        boolean(value, place)
    elif kind == "factor":
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = 0.0
        if isinstance(value, bool) or not 1 <= number <= 1000:
            raise Invalid(place, f"found {found(value)}; allowed: a number from 1 to 1000")
    elif kind == "duration":
        decode({"at": value}, _OneDuration, path=arguments.at)
    elif not isinstance(value, str):
        raise Invalid(place, f"found {found(value)}; allowed: names of resources separated by commas")


class _OneDuration(Section, frozen=True, kw_only=True):
    at: Duration = 0.0


def _check_together(seen: Mapping[str, TierPlugin], at: Path, warn: Warn) -> None:
    if "proportion" in seen and "capacity" in seen:
        raise Invalid(
            at, "has proportion and capacity, which divide the cluster among queues by different rules; keep one"
        )
    for name, why in (
        ("predicates", "only the free resources of nodes are checked"),
        ("gang", "pods are bound even below their group's minimum"),
    ):
        if name not in seen:
            warn(at, f"has no {name}: {why}")
    if not {"proportion", "capacity"} & seen.keys():
        warn(at, "has neither proportion nor capacity: queues have no limits")
