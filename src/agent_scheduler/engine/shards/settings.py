"""The settings of a plan of shards: the shards in their order, their policies, and common settings.

The structs are also the schema: `config.sharding` checks a file against their types. Other rules are in
`__post_init__`, which raises `SettingsError` with the path. An existing struct holds valid settings. Policies and their
arguments are Volcano's by name and meaning; additions are noted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, field

from apimachinery.quantity import QuantityError, resource_value

from ..framework.args import LabelKey
from ..state.requests import Amounts

#: The name for no shard: leftover nodes are then in no shard.
NOBODY: Final = "none"

Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0)]

#: The treatment of nodes that accept no new pods. exclude: they leave their shard. keep: they stay in the shard whose
#: spec has them, count in none of its limits, and join no other. include: they are like all others.
Treatment = Literal["exclude", "keep", "include"]


class SettingsError(ValueError):
    """Settings that contradict one another. `path` is relative to the struct that raised it, by keys of the file."""

    def __init__(self, path: tuple[str | int, ...], message: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message


class SettingsBase(Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all settings."""


class Range(SettingsBase, frozen=True, kw_only=True):
    """The range of a rate, including both ends."""

    min: Share = 0.0
    max: Share = 1.0

    def __post_init__(self) -> None:
        if self.min > self.max:
            raise SettingsError(("min",), f"found the number {self.min:g}; allowed: at most max ({self.max:g})")


class AllocationRateArgs(SettingsBase, frozen=True, kw_only=True):
    """Selects nodes by requested fractions of their resources.

    CPU's range is 0 to 1 by default, and CPU is ignored if only other resources are named. Memory and `resources` are
    additions to Volcano's arguments.
    """

    min_cpu_util: Share | None = field(default=None, name="minCPUUtil")
    max_cpu_util: Share | None = field(default=None, name="maxCPUUtil")
    min_memory_util: Share | None = None
    max_memory_util: Share | None = None
    #: Resource -> range, for cpu, memory, ephemeral-storage or an extended one.
    resources: dict[str, Range] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for resource, name, low, high in self._named():
            least, most = low or 0.0, 1.0 if high is None else high
            if least > most:
                raise SettingsError(
                    (f"min{name}Util",), f"found the number {least:g}; allowed: at most max{name}Util ({most:g})"
                )
            if resource in self.resources and (low is not None or high is not None):
                raise SettingsError(
                    ("resources", resource), f"is also set by min{name}Util and max{name}Util; allowed: one of both"
                )

    def _named(self) -> tuple[tuple[str, str, float | None, float | None], ...]:
        return (
            ("cpu", "CPU", self.min_cpu_util, self.max_cpu_util),
            ("memory", "Memory", self.min_memory_util, self.max_memory_util),
        )

    @property
    def ranges(self) -> Mapping[str, Range]:
        """Resource -> range, at least one."""
        found = {
            resource: Range(min=low or 0.0, max=1.0 if high is None else high)
            for resource, _, low, high in self._named()
            if low is not None or high is not None
        }
        return {**found, **self.resources} or {"cpu": Range()}


class WarmupArgs(SettingsBase, frozen=True, kw_only=True):
    """Prefers nodes with this label."""

    warmup_label: LabelKey = "node.volcano.sh/warmup"
    warmup_label_value: str = "true"


class NodeLimitArgs(SettingsBase, frozen=True, kw_only=True):
    """Limits the number and capacity of nodes.

    All but the first two are additions to Volcano's arguments, whose minimum is only logged.
    """

    #: The minimum, respected if there are enough nodes: earlier shards leave them, and leftover nodes fill it.
    min_nodes: Count = 0
    #: 0: any number.
    max_nodes: Count = 0
    #: The percentage of the assignable nodes, rounded up.
    max_percent: Annotated[float, Meta(gt=0, le=100)] | None = None
    #: The limits of the shard's allocatable sums as quantities, by resource.
    max_capacity: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.max_nodes and self.max_nodes < self.min_nodes:
            raise SettingsError(
                ("maxNodes",),
                f"found the number {self.max_nodes}; allowed: 0 (any number), or minNodes ({self.min_nodes}) and more",
            )
        for resource, quantity in self.max_capacity.items():
            try:
                amount = resource_value(resource, quantity)
            except QuantityError as error:
                raise SettingsError(("maxCapacity", resource), str(error)) from None
            if amount <= 0:
                raise SettingsError(("maxCapacity", resource), f"found {quantity!r}; allowed: a quantity above 0")

    @property
    def budget(self) -> Amounts:
        """`max_capacity` in the ledger's units."""
        return {resource: resource_value(resource, each) for resource, each in self.max_capacity.items()}


PolicyArgs = AllocationRateArgs | WarmupArgs | NodeLimitArgs

#: The arguments of policies by their names in a configuration.
POLICIES: Final[Mapping[str, type[PolicyArgs]]] = {
    "allocation-rate": AllocationRateArgs,
    "node-limit": NodeLimitArgs,
    "warmup": WarmupArgs,
}


class PolicySettings(SettingsBase, frozen=True, kw_only=True):
    #: The weight of its score; a policy with 0 does not rank, but still filters and limits.
    weight: Annotated[float, Meta(ge=0, le=1_000_000)] = 1.0
    arguments: PolicyArgs


class ShardSettings(SettingsBase, frozen=True, kw_only=True):
    """One shard. Without a policy that filters it accepts every node; without a limit, any number."""

    name: str
    #: The type of its scheduler. Not read here.
    type: str = ""
    policies: tuple[PolicySettings, ...] = ()


class Stickiness(SettingsBase, frozen=True, kw_only=True):
    """The gain that is required for a node to change its shard."""

    #: A node replaces one in the shard only if its score is higher by more than this fraction of the highest possible
    #: score. A tie changes nothing, even at 0.
    gain: Share = 0.1
    #: The margin by which a shard's own nodes may be outside of its ranges of rates.
    margin: Share = 0.05


class PlanSettings(SettingsBase, frozen=True, kw_only=True):
    """All settings of a plan. An earlier shard chooses before a later one."""

    shards: tuple[ShardSettings, ...]
    #: The shard of nodes that no shard chose, within its limits; `NOBODY`: none. Empty: the first.
    leftover: str = ""
    stickiness: Stickiness = Stickiness()
    cordoned_nodes: Treatment = "exclude"
    #: The treatment of nodes whose condition Ready is not True.
    not_ready_nodes: Treatment = "exclude"

    def __post_init__(self) -> None:
        if not self.shards:
            raise SettingsError(("shards",), "found an empty list; allowed: at least one shard")
        names: set[str] = set()
        for index, shard in enumerate(self.shards):
            at = ("shards", index, "name")
            if not shard.name or shard.name == NOBODY:
                raise SettingsError(at, f"found {shard.name!r}; allowed: the name of a shard, other than {NOBODY!r}")
            if shard.name in names:
                raise SettingsError(at, f"found {shard.name!r} a second time; allowed: each name once")
            names.add(shard.name)
        if self.leftover not in ("", NOBODY, *self.names):
            raise SettingsError(
                ("leftover",),
                f"found {self.leftover!r}; allowed: {NOBODY}, or one of the shards: {', '.join(self.names)}",
            )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(shard.name for shard in self.shards)

    @property
    def leftover_shard(self) -> str | None:
        """None: leftover nodes are in no shard."""
        return None if self.leftover == NOBODY else self.leftover or self.shards[0].name
