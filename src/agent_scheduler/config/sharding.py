"""The configuration of the sharding controller: Volcano's `sharding.yaml`, and the older form as a flag.

An invalid configuration is rejected as a whole, with one message that names the place, the value and what is allowed.
A configuration without shards is invalid: it never means that all shards should be removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from agent_scheduler.engine.shards.settings import (
    POLICIES,
    Count,
    NodeLimitArgs,
    PlanSettings,
    PolicyArgs,
    PolicySettings,
    SettingsError,
    ShardSettings,
    Share,
    Stickiness,
    Treatment,
    WarmupArgs,
)
from apimachinery.codec import Warn, decode, fields, silent, suggest
from apimachinery.document import Document
from apimachinery.errors import ConfigurationError, Invalid, Path, show
from apimachinery.values import Duration, Section

#: The key of the ConfigMap.
FILE = "sharding.yaml"

SCHEDULER_CONFIGS_FLAG = "--scheduler-configs"
#: Volcano's default value.
DEFAULT_SCHEDULER_CONFIGS = "volcano:volcano:0.0:0.6:false:2:100,agent-scheduler:agent:0.7:1.0:true:2:100"

_SHARDS = "schedulerConfigs"
_PARTS = ("name", "type", "min", "max", "prefer_warmup", "minNodes", "maxNodes")
_ALLOWED_SHARDS = f"{_SHARDS}: a list of at least one shard, each with a name and policies"
#: Go's boolean values.
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
#: The values of Volcano's flag for the ends of a range.
_ENDS = {"inf": 1.0, "infinity": 1.0, "-inf": 0.0, "-infinity": 0.0}


#: The API server's rule for the name of a NodeShard (RFC 1123 subdomain).
ShardName = Annotated[
    str,
    Meta(
        pattern=r"^(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        extra={"allowed": "an object's name: lower case letters, digits, - and ."},
    ),
]


class PolicyEntry(Section, frozen=True, kw_only=True):
    """A policy. `arguments` are checked against those of the policy with this name."""

    name: str
    #: The default is 1. 0 means 0, while Volcano treats it as 1.
    weight: Annotated[float, Meta(ge=0, le=1_000_000)] | None = None
    arguments: dict[str, Any] = field(default_factory=dict)


class SchedulerEntry(Section, frozen=True, kw_only=True):
    """A shard. Everything after `policies` is deprecated, and defines policies if there are none."""

    name: ShardName
    type: str = ""
    policies: tuple[PolicyEntry, ...] = ()
    #: Arguments of allocation-rate.
    arguments: dict[str, Any] = field(default_factory=dict)
    cpu_utilization_min: Share | None = None
    cpu_utilization_max: Share | None = None
    prefer_warmup_nodes: bool = False
    min_nodes: Count = 0
    max_nodes: Count = 0


class ShardingFile(Section, frozen=True, kw_only=True):
    """The file. The first three settings are Volcano's, the others those of `engine.shards.settings.PlanSettings`."""

    scheduler_configs: tuple[SchedulerEntry, ...]
    shard_sync_period: Duration | None = None
    enable_node_event_trigger: bool | None = None
    leftover: str = ""
    stickiness: Stickiness = Stickiness()
    cordoned_nodes: Treatment = "exclude"
    not_ready_nodes: Treatment = "exclude"


class ShardingConfiguration(Struct, frozen=True, kw_only=True):
    """The whole configuration.

    None means that the file does not have the setting, and the controller's flag applies.
    """

    plan: PlanSettings
    #: Seconds between two full syncs.
    sync_period: float | None = None
    #: Whether a change of a node or pod causes an immediate plan; otherwise only the period does.
    node_event_trigger: bool | None = None
    #: Ineffective or deprecated settings with their place, for the log.
    warnings: tuple[str, ...] = ()


def load_sharding(text: str, *, source: str) -> ShardingConfiguration:
    """Read the text of `sharding.yaml`. `source` names it in errors, for example `configmap volcano-system/x`.

    Raises ConfigurationError with one complete message, also for an empty text and an empty list of shards.
    """
    document = Document(text, source=source)
    if document.data is None:
        raise ConfigurationError(f"{source}: is empty; allowed: {_ALLOWED_SHARDS}")
    warnings: list[str] = []

    def place(path: Path) -> str:
        where = document.where(path)
        return f"{where}: {show(path)}" if path else where

    def warn(path: Path, message: str) -> None:
        warnings.append(f"{place(path)}: {message}")

    try:
        file = decode(document.data, ShardingFile)
        plan = _plan(file, warn)
        if file.shard_sync_period == 0:
            raise Invalid(("shardSyncPeriod",), "found 0s; allowed: a duration above 0, such as 60s")
    except Invalid as error:
        raise ConfigurationError(f"{place(error.path)}: {error.message}") from None
    return ShardingConfiguration(
        plan=plan,
        sync_period=file.shard_sync_period,
        node_event_trigger=file.enable_node_event_trigger,
        warnings=tuple(warnings),
    )


def parse_scheduler_configs(text: str) -> ShardingConfiguration:
    """Read the flag `--scheduler-configs`: `name:type:min:max:prefer_warmup:minNodes:maxNodes,...`.

    min and max are the range of CPU utilization. Raises ConfigurationError with the flag and the part.
    """
    parts = [part.strip() for part in text.split(",")]
    try:
        plan = _plan(decode({_SHARDS: [_flag_entry(part) for part in parts]}, ShardingFile), silent)
    except Invalid as error:
        raise ConfigurationError(
            f"{SCHEDULER_CONFIGS_FLAG}: {_flag_place(error.path, parts)}: {error.message}"
        ) from None
    return ShardingConfiguration(plan=plan)


def _plan(file: ShardingFile, warn: Warn) -> PlanSettings:
    shards = tuple(
        ShardSettings(name=entry.name, type=entry.type, policies=_policies(entry, (_SHARDS, index), warn))
        for index, entry in enumerate(file.scheduler_configs)
    )
    try:
        return PlanSettings(
            shards=shards,
            leftover=file.leftover,
            stickiness=file.stickiness,
            cordoned_nodes=file.cordoned_nodes,
            not_ready_nodes=file.not_ready_nodes,
        )
    except SettingsError as error:
        path = (_SHARDS, *error.path[1:]) if error.path[0] == "shards" else error.path
        raise Invalid(path, error.message) from None


def _policies(entry: SchedulerEntry, at: Path, warn: Warn) -> tuple[PolicySettings, ...]:
    made = [_policy(each, (*at, "policies", index)) for index, each in enumerate(entry.policies)]
    if made:
        for key, said in (
            ("arguments", bool(entry.arguments)),
            ("cpuUtilizationMin", entry.cpu_utilization_min is not None),
            ("cpuUtilizationMax", entry.cpu_utilization_max is not None),
            ("preferWarmupNodes", entry.prefer_warmup_nodes),
        ):
            if said:
                warn((*at, key), "has no effect beside policies")
    else:
        made = _older_policies(entry, at, warn)
    if entry.min_nodes or entry.max_nodes:
        if any(isinstance(each.arguments, NodeLimitArgs) for each in made):
            key = "minNodes" if entry.min_nodes else "maxNodes"
            raise Invalid((*at, key), "is also set by the policy node-limit; allowed: one of them")
        limit = {"minNodes": entry.min_nodes, "maxNodes": entry.max_nodes}
        made.append(PolicySettings(arguments=decode(limit, NodeLimitArgs, path=at)))
        for key, number in limit.items():
            if number:
                warn((*at, key), "is deprecated; use the policy node-limit")
    _check_limits(made, at)
    return tuple(made)


def _policy(entry: PolicyEntry, at: Path) -> PolicySettings:
    cls = POLICIES.get(entry.name)
    if cls is None:
        raise Invalid((*at, "name"), f"found {entry.name!r}; {suggest(entry.name, POLICIES)}")
    for key in entry.arguments:
        if key not in fields(cls):
            others = [name for name, other in POLICIES.items() if key in fields(other)]
            whose = f"unknown key; it is an argument of {others[0]}" if others else "unknown key"
            raise Invalid((*at, "arguments", key), f"{whose}; {suggest(key, fields(cls))}")
    arguments: PolicyArgs = decode(entry.arguments, cls, path=(*at, "arguments"))
    return PolicySettings(weight=1.0 if entry.weight is None else entry.weight, arguments=arguments)


def _older_policies(entry: SchedulerEntry, at: Path, warn: Warn) -> list[PolicySettings]:
    """Return the policies of a shard without policies, as in Volcano: a CPU range, and possibly warm nodes first."""
    given = dict(entry.arguments)
    ends = (
        ("cpuUtilizationMin", "minCPUUtil", entry.cpu_utilization_min),
        ("cpuUtilizationMax", "maxCPUUtil", entry.cpu_utilization_max),
    )
    for key, argument, value in ends:
        if value is not None:
            if given.get(argument) is not None:
                raise Invalid((*at, key), f"is also set by arguments.{argument}; allowed: one of them")
            given[argument] = value
            warn((*at, key), "is deprecated; use the policy allocation-rate")
    low, high = entry.cpu_utilization_min, entry.cpu_utilization_max
    if low is not None and high is not None and low > high:
        raise Invalid(
            (*at, "cpuUtilizationMin"), f"found the number {low:g}; allowed: at most cpuUtilizationMax ({high:g})"
        )
    if entry.arguments:
        warn((*at, "arguments"), "is deprecated; give the policy allocation-rate")
    rate = PolicyEntry(name="allocation-rate", arguments=given)
    made = [_policy(rate, at)]
    if entry.prefer_warmup_nodes:
        warn((*at, "preferWarmupNodes"), "is deprecated; use the policy warmup")
        made.append(PolicySettings(arguments=WarmupArgs()))
    return made


def _check_limits(made: list[PolicySettings], at: Path) -> None:
    """Check that the strictest of several limits do not contradict one another."""
    limits = [each.arguments for each in made if isinstance(each.arguments, NodeLimitArgs)]
    least = max((each.min_nodes for each in limits), default=0)
    most = min((each.max_nodes for each in limits if each.max_nodes), default=least)
    if most < least:
        raise Invalid(
            (*at, "policies"), f"found minNodes {least} and maxNodes {most}; allowed: maxNodes not below minNodes"
        )


def _flag_entry(part: str) -> dict[str, Any]:
    """Return a shard of the flag in the form of a file. Invalid numbers are checked as in a file."""
    words = part.split(":")
    if len(words) != len(_PARTS):
        raise ConfigurationError(f"{SCHEDULER_CONFIGS_FLAG}: found {part!r}; allowed: {':'.join(_PARTS)}")
    name, kind, low, high, warmup, least, most = words
    return {
        "name": name,
        "type": kind,
        "cpuUtilizationMin": _number(low, float),
        "cpuUtilizationMax": _number(high, float),
        "preferWarmupNodes": _BOOLEANS.get(warmup, warmup),
        "minNodes": _number(least, int),
        "maxNodes": _number(most, int),
    }


def _number(text: str, kind: Callable[[str], float]) -> float | str:
    if kind is float and text in _ENDS:
        return _ENDS[text]
    try:
        return kind(text)
    except ValueError:
        return text


def _flag_place(path: Path, parts: list[str]) -> str:
    """Return the place of an error, such as `'volcano:volcano:2:...', max`."""
    keys = ("name", "type", "cpuUtilizationMin", "cpuUtilizationMax", "preferWarmupNodes", "minNodes", "maxNodes")
    index, key = path[1], path[-1]
    assert isinstance(index, int)
    return f"{parts[index]!r}, {_PARTS[keys.index(str(key))]}"
