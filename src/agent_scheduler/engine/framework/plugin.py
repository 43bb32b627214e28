"""The contract of plugins, and the profile that combines them.

The extension points are kube-scheduler's, applied to columns: a filter answers for many nodes at once, a score returns
one number per node. The contracts below allow answers to be kept from pod to pod:

- `prepare` compiles the values that a plugin reads from a pod class. None means that the plugin does not apply to such
  pods and is left out (upstream's Skip).
- `depends` declares the data that an answer for a row can depend on. NODE: the node's own spec. ROOM: only the offered
  and taken amounts of the node, the free shares of its GPUs, and labels that the plugin has registered
  (`Interns.tell_apart`), so equal rows are asked about once. USAGE: the node's spec and the pods on the row. NODES
  (scores only): the specs of all nodes. CLUSTER: anything on any row, so all rows are asked about again in every cycle
  in which any row changed.
- `feasible`, `score` and `reasons` are pure in (state, columns, rows).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ..dra.catalogue import Devices
from ..events.events import ActionType, ClusterEvent, Resource
from ..events.hints import ClusterEventWithHint, HintMap, QueueingHint
from ..events.prehints import own_pod
from ..gangs.native import NativeGroups
from ..ledger import Ledger
from ..state.columns import Bools, Columns, Ints, Rows
from ..state.podclass import PodClass
from ..state.podinfo import PodInfo
from .handle import Handle
from .prebind import Permit, PreBind, Reserve

MAX_NODE_SCORE = 100

#: The rejector of a pod whose spec is invalid: only a change of the pod itself helps.
POD_SPEC = "PodSpec"

#: The rejector of a pod in a cluster without nodes: no plugin was asked, so any new node is worth an attempt.
NO_NODES = "NoNodes"


#: The plugin of profiles whose pods are scheduled in groups, and the rejector of pods that could not be placed
#: together.
GANG_SCHEDULING = "GangScheduling"


class Depends(enum.Enum):
    """The data that the answer for one row depends on."""

    NODE = enum.auto()
    ROOM = enum.auto()
    USAGE = enum.auto()
    NODES = enum.auto()
    CLUSTER = enum.auto()


class Reads(enum.Enum):
    """Data that is only watched or kept if a plugin of some profile reads it."""

    #: `PodClass.images` and `Columns.image`.
    IMAGES = enum.auto()
    #: `PodClass.siblings`: services, and the controllers of pods.
    OWNERS = enum.auto()
    #: `Handle.target_workload`.
    TARGET_WORKLOAD = enum.auto()
    #: `ClusterView.quotas` of a session, and `PodInfo.quota`.
    QUOTAS = enum.auto()


class PodRejected(Exception):
    """Raised by `Filter.prepare` if no node is feasible; the text is the reason (kube-scheduler's PreFilter)."""


class PodUnrankable(Exception):
    """Raised by `Score.prepare` if no choice among several nodes is possible; the text is the reason.

    Corresponds to an error of kube-scheduler's PreScore. A pod with a single feasible node is not ranked, and goes
    there.
    """


class Filter(Protocol):
    """Refuses nodes. `name` is kube-scheduler's plugin name.

    `reads_amounts_only`: of the pods on a row it reads only `Columns.usage`, and a row that it refuses stays refused if
    more is taken there. So preemption can ask about many rows at once.

    `reads_requests`: `prepare` reads the resources that the pod requests (`PodClass.requests`, `nonzero`, `extended`).
    Without it, `prepare` is called once for all classes that are otherwise equal.
    """

    name: str
    depends: Depends
    reads: frozenset[Reads] = frozenset()
    reads_amounts_only: bool = False
    reads_requests: bool = True
    #: The reason, if there is only one.
    reason: str = ""
    #: Asked before the filters of all plugins, as a part of this one: the set of nodes to which kube-scheduler's
    #: PreFilter restricts the pod.
    narrowing: Filter | None = None

    def prepare(self, pod: PodClass, handle: Handle) -> Any | None:
        """Return the state for `feasible`, shared by all pods of the class; None to leave the plugin out.

        Raises PodRejected.
        """

    def feasible(self, state: Any, nodes: Columns, rows: Rows) -> Bools:
        """Return one bool for each of `rows`: whether this plugin passes the pod there."""

    def feasible_row(self, state: Any, nodes: Columns, row: int) -> bool:
        """Return `feasible` for one row: a bind changes one row, for which plain numbers are faster than arrays.

        Called for plugins that depend on ROOM or USAGE; the default is correct for all, if slow.
        """
        return bool(self.feasible(state, nodes, np.array((row,), dtype=np.intp))[0])

    def reasons(self, state: Any, nodes: Columns, rows: Rows) -> Mapping[str, int]:
        """Return kube-scheduler's reasons and their numbers of `rows`; all `rows` are refused."""
        return {self.reason: rows.shape[0]}

    def curable(self, state: Any, nodes: Columns, rows: Rows) -> Bools:
        """Return on which of `rows`, all refused, the pod may pass if pods of lower priority are removed.

        kube-scheduler calls the others unresolvable. By default these are the nodes refused for their own spec.
        """
        return np.full(rows.shape[0], self.depends is not Depends.NODE)

    def nearest(self, state: Any, nodes: Columns, rows: Rows) -> Rows:
        """Return `rows`, all refused, sorted by the amount they lack, least first; for explanations."""
        return rows

    def missing(self, state: Any, nodes: Columns, row: int) -> str:
        """Return a description of what the refused `row` lacks, with numbers if there are any; for explanations."""
        return ", ".join(self.reasons(state, nodes, np.array((row,), dtype=np.intp)))


class Score(Protocol):
    """Ranks nodes that passed every filter. `reads_requests` is as in a filter."""

    name: str
    depends: Depends
    reads: frozenset[Reads] = frozenset()
    reads_requests: bool = True
    #: What a raw score counts for each of 100 points.
    per_point: int = 1

    @property
    def normalize(self) -> Callable[[Ints], Ints] | None:
        """Converts raw scores of the feasible nodes to 0..100; None if raw scores are in that range."""

    def prepare(self, pod: PodClass, handle: Handle) -> Any | None:
        """Return the state for `score`; None if every node would have the same score. Raises PodUnrankable."""

    def score(self, state: Any, nodes: Columns, rows: Rows) -> Ints:
        """Return one raw score for each of `rows`."""

    def score_row(self, state: Any, nodes: Columns, row: int) -> int:
        """Return `score` for one row; see `Filter.feasible_row`."""
        return int(self.score(state, nodes, np.array((row,), dtype=np.intp))[0])


@runtime_checkable
class Faceted(Protocol):
    """A filter or score that depends on the cluster and can name rows with equal answers (`facet_classes`)."""

    def facets(self, state: Any, nodes: Columns) -> tuple[Ints, ...]:
        """Return arrays of [row] numbers from which, with values shared by all rows, the answer for a row is computed.

        The numbers of a row change only when the row does; any other change returns a new array.
        """


@runtime_checkable
class FacetedScore(Faceted, Protocol):
    def score_classes(self, state: Any, nodes: Columns, rows: Rows, sizes: Callable[[Rows], Ints]) -> Ints:
        """Return the `score` of `rows` as if all rows with their facets were asked about; `sizes` counts these."""


@runtime_checkable
class EnqueueExtensions(Protocol):
    """A plugin that declares the events which may make a pod it refused schedulable (KEP-4247)."""

    name: str

    def events_to_register(self) -> Sequence[ClusterEventWithHint]: ...


@runtime_checkable
class ClusterReader(Protocol):
    """A plugin whose hints or gate read the current state of the cluster."""

    def seeing(self, ledger: Ledger, devices: Devices, groups: NativeGroups) -> Any:
        """Return a copy of the plugin that reads these. The original is unchanged: it may be used elsewhere."""


@runtime_checkable
class CleanupReservations(Protocol):
    """A plugin that keeps state for pods which were admitted to their queue and have no node yet.

    Corresponds to `AddCleanupReservationsFn` of Volcano's design.
    """

    name: str

    def cleanup_reservations(self, pod: PodInfo) -> None:
        """Handle the end of the pod's reservation: it has a node, is deleted, or has held its room for too long.

        Called once for each reservation.
        """


@runtime_checkable
class PreEnqueue(Protocol):
    """A plugin that can keep a pod out of the queue.

    A plugin that concerns only certain pods may define `concerns`, which returns false for all others: these are
    admitted without `pre_enqueue`, as are pods whose UID is not in its optional `gated`.
    """

    @property
    def name(self) -> str: ...

    def pre_enqueue(self, pod: PodInfo) -> str | None:
        """Return the reason why the pod has to wait, or None."""


class PostFilter(Protocol):
    """Allows the pods of a profile to evict others, and limits the search for victims."""

    name: str

    def wanted(self, nodes: int) -> int:
        """Return the number of candidates that suffices among `nodes` nodes on which evictions may help."""

    def events_to_register(self) -> Sequence[ClusterEventWithHint]: ...


def default_normalize(scores: Ints) -> Ints:
    """Scale so that the best has 100; all zero stays zero (kube-scheduler's `DefaultNormalizeScore`)."""
    top = int(scores.max(initial=0))
    return scores if top == 0 else scores * MAX_NODE_SCORE // top


def default_normalize_reversed(scores: Ints) -> Ints:
    """Scale as `default_normalize` with reversed order: all zero becomes all 100."""
    top = int(scores.max(initial=0))
    if top == 0:
        return np.full_like(scores, MAX_NODE_SCORE)
    return MAX_NODE_SCORE - scores * MAX_NODE_SCORE // top


@dataclass(frozen=True, slots=True)
class WeightedScore:
    plugin: Score
    weight: int


@dataclass(frozen=True, slots=True)
class Profile:
    """The plugins that decide for the pods of one schedulerName, in the order in which they are asked."""

    scheduler_name: str
    filters: tuple[Filter, ...]
    scores: tuple[WeightedScore, ...]
    #: The number that stands for one of the 100 points of a score.
    per_point: int = 1
    pre_enqueue: tuple[PreEnqueue, ...] = ()
    #: None if no pod is evicted for pods that every node refused.
    preemption: PostFilter | None = None
    reserves: tuple[Reserve, ...] = ()
    permits: tuple[Permit, ...] = ()
    pre_binds: tuple[PreBind, ...] = ()
    #: Whether events and conditions of its pods are limited to those of kube-scheduler.
    as_kube: bool = False
    #: Plugins that are asked about groups instead of nodes: their names and what they read.
    of_groups: tuple[tuple[str, frozenset[Reads]], ...] = ()

    @property
    def gangs(self) -> bool:
        """Whether members of a PodGroup are placed together; otherwise each member is a pod like any other."""
        return any(plugin.name == GANG_SCHEDULING for plugin in self.pre_enqueue)

    def without_gangs(self) -> Profile:
        others = tuple(plugin for plugin in self.pre_enqueue if plugin.name != GANG_SCHEDULING)
        return replace(self, pre_enqueue=others)

    @property
    def reads(self) -> frozenset[Reads]:
        """The data that its plugins read."""
        plugins: tuple[Filter | Score, ...] = (*self.filters, *(each.plugin for each in self.scores))
        return frozenset().union(*(plugin.reads for plugin in plugins), *(reads for _, reads in self.of_groups))

    @property
    def plugin_names(self) -> frozenset[str]:
        named: list[Any] = [*self.pre_enqueue, *self.filters, *self.reserves, *self.permits, *self.pre_binds]
        named += (each.plugin for each in self.scores)
        preempting = () if self.preemption is None else (self.preemption,)
        return frozenset(each.name for each in (*named, *preempting)).union(name for name, _ in self.of_groups)

    def seeing(self, ledger: Ledger, devices: Devices, groups: NativeGroups) -> Profile:
        """Return the profile bound to one cluster state. A plugin at two points stays one object."""
        seen: dict[int, Any] = {}
        for plugin in (*self.pre_enqueue, *self.filters, *self.reserves, *self.permits, *self.pre_binds):
            if id(plugin) not in seen:
                seen[id(plugin)] = (
                    plugin.seeing(ledger, devices, groups) if isinstance(plugin, ClusterReader) else plugin
                )
        return replace(
            self,
            filters=tuple(seen[id(plugin)] for plugin in self.filters),
            pre_enqueue=tuple(seen[id(plugin)] for plugin in self.pre_enqueue),
            reserves=tuple(seen[id(plugin)] for plugin in self.reserves),
            permits=tuple(seen[id(plugin)] for plugin in self.permits),
            pre_binds=tuple(seen[id(plugin)] for plugin in self.pre_binds),
        )

    def cleanups(self) -> tuple[CleanupReservations, ...]:
        """Return its plugins that implement `cleanup_reservations`, without duplicates."""
        scores = (each.plugin for each in self.scores)
        plugins = (*self.pre_enqueue, *self.filters, *scores, *self.reserves, *self.permits, *self.pre_binds)
        found = {id(plugin): plugin for plugin in plugins if isinstance(plugin, CleanupReservations)}
        return tuple(found.values())

    def hint_map(self) -> HintMap:
        """Return the events that may help each plugin's refused pods; any event for a plugin that declares none."""
        own_change = ClusterEventWithHint(ClusterEvent(Resource.TARGET_POD, ActionType.UPDATE), _own_change, own_pod)
        any_node = ClusterEventWithHint(ClusterEvent(Resource.NODE, ActionType.ADD))
        events: dict[str, Sequence[ClusterEventWithHint] | None] = {POD_SPEC: (own_change,), NO_NODES: (any_node,)}
        plugins: tuple[PreEnqueue | Filter | Permit, ...] = (*self.pre_enqueue, *self.filters, *self.permits)
        for plugin in plugins:
            events[plugin.name] = plugin.events_to_register() if isinstance(plugin, EnqueueExtensions) else None
        if self.preemption is not None:
            events[self.preemption.name] = self.preemption.events_to_register()
        return HintMap(events)


def _own_change(pod: PodInfo, old: object | None, new: object | None) -> QueueingHint:
    return QueueingHint.QUEUE if isinstance(new, PodInfo) and new.uid == pod.uid else QueueingHint.SKIP
