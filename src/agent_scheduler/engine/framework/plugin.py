"""What a plugin is, and what a profile makes of plugins.

The extension points are kube-scheduler's, seen from columns: a filter answers for many nodes at once, a score
gives one number a node. The contracts below are what lets answers be kept from pod to pod:

- `prepare` compiles what a plugin reads from a pod class. None means that the plugin has nothing to say about
  such pods and is left out (upstream's Skip).
- `depends` says what an answer for a row can depend on. NODE: the node's own spec. ROOM: nothing but what the node
  offers and what is taken of it, of GPUs how much of how many, and labels that the plugin has had told apart
  (`Interns.tell_apart`), so rows that are alike in this are asked about once. USAGE: the node's spec and what runs on
  the row. NODES (scores only): the specs of all nodes. CLUSTER: anything on any row, so it is asked for all rows
  again in every cycle in which any row changed.
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
from ..state.columns import Bools, Columns, Ints, Rows
from ..state.ledger import Ledger
from ..state.podclass import PodClass
from ..state.podinfo import PodInfo
from .handle import Handle
from .prebind import Permit, PreBind, Reserve

MAX_NODE_SCORE = 100

#: What a pod whose spec cannot be read counts as refused by: only a change of the pod itself helps it.
POD_SPEC = "PodSpec"

#: What a pod counts as refused by where there are no nodes: no plugin was asked, so any node is worth a try.
NO_NODES = "NoNodes"


#: The plugin of profiles whose pods are scheduled in groups, and what those wait for that could not be placed together.
GANG_SCHEDULING = "GangScheduling"


class Depends(enum.Enum):
    """What the answer for one row depends on."""

    NODE = enum.auto()
    ROOM = enum.auto()
    USAGE = enum.auto()
    NODES = enum.auto()
    CLUSTER = enum.auto()


class Reads(enum.Enum):
    """What a plugin reads that is only watched or kept where some plugin of a profile does."""

    #: `PodClass.images` and `Columns.image`.
    IMAGES = enum.auto()
    #: `PodClass.siblings`: services, and the controllers of pods.
    OWNERS = enum.auto()
    #: `Handle.target_workload`.
    TARGET_WORKLOAD = enum.auto()
    #: `View.quotas` of a session, and `PodInfo.quota`.
    QUOTAS = enum.auto()


class PodRejected(Exception):
    """Raised by `Filter.prepare`: no node at all will do, and the text says why (kube-scheduler's PreFilter)."""


class PodUnrankable(Exception):
    """Raised by `Score.prepare`: of several nodes none can be chosen, and the text says why (an error of
    kube-scheduler's PreScore). A pod that a single node is left for is not ranked, and goes there."""


class Filter(Protocol):
    """Refuses nodes. `name` is kube-scheduler's plugin name.

    `reads_amounts_only`: of what runs on a row it reads `Columns.usage` alone, and what it refuses it would refuse if
    more were taken there. So preemption can ask it about many rows at once.

    `reads_requests`: `prepare` reads what the pod asks for of resources (`PodClass.requests`, `nonzero`, `extended`).
    One that does not is asked once for all classes that are otherwise the same.
    """

    name: str
    depends: Depends
    reads: frozenset[Reads] = frozenset()
    reads_amounts_only: bool = False
    reads_requests: bool = True
    #: Where there is but one.
    reason: str = ""
    #: Asked before the filters of all plugins, as a part of this one: what kube-scheduler's PreFilter narrows the nodes
    #: down to.
    narrowing: Filter | None = None

    def prepare(self, pod: PodClass, handle: Handle) -> Any | None:
        """State for `feasible`, shared by all pods of the class; None to leave the plugin out. Raises PodRejected."""

    def feasible(self, state: Any, nodes: Columns, rows: Rows) -> Bools:
        """One bool for each of `rows`: whether this plugin lets the pod go there."""

    def feasible_row(self, state: Any, nodes: Columns, row: int) -> bool:
        """`feasible` for one row: a bind changes one, and plain numbers answer for it sooner than arrays.

        Asked of plugins that depend on ROOM or USAGE; the default is right for all, if not quick.
        """
        return bool(self.feasible(state, nodes, np.array((row,), dtype=np.intp))[0])

    def reasons(self, state: Any, nodes: Columns, rows: Rows) -> Mapping[str, int]:
        """Reason, in kube-scheduler's words, and on how many of `rows` it holds; `rows` are all refused."""
        return {self.reason: rows.shape[0]}

    def curable(self, state: Any, nodes: Columns, rows: Rows) -> Bools:
        """On which of `rows`, all refused, the pod might pass if pods of lower priority went away.

        The others are what kube-scheduler calls unresolvable. By default what a node's own spec refuses.
        """
        return np.full(rows.shape[0], self.depends is not Depends.NODE)

    def nearest(self, state: Any, nodes: Columns, rows: Rows) -> Rows:
        """`rows`, all refused, with those first that lack least; for explanations."""
        return rows

    def missing(self, state: Any, nodes: Columns, row: int) -> str:
        """What `row`, which is refused, lacks, in numbers where there are any; for explanations."""
        return ", ".join(self.reasons(state, nodes, np.array((row,), dtype=np.intp)))


class Score(Protocol):
    """Ranks nodes that every filter has passed. `reads_requests` is as of a filter."""

    name: str
    depends: Depends
    reads: frozenset[Reads] = frozenset()
    reads_requests: bool = True

    @property
    def normalize(self) -> Callable[[Ints], Ints] | None:
        """Turns raw scores of the feasible nodes into 0..100; None where they are that already."""

    def prepare(self, pod: PodClass, handle: Handle) -> Any | None:
        """State for `score`; None where every node would get the same. Raises PodUnrankable."""

    def score(self, state: Any, nodes: Columns, rows: Rows) -> Ints:
        """One raw score for each of `rows`."""

    def score_row(self, state: Any, nodes: Columns, row: int) -> int:
        """`score` for one row, as `Filter.feasible_row` is to `feasible`."""
        return int(self.score(state, nodes, np.array((row,), dtype=np.intp))[0])


@runtime_checkable
class Faceted(Protocol):
    """A filter or score that depends on the cluster, and can say of which rows it says the same (`cells`)."""

    def facets(self, state: Any, nodes: Columns) -> tuple[Ints, ...]:
        """[row] numbers: all that is said of a row is made of its own ones, and of what all rows share. Those of a row
        change when the row does; an array whose numbers changed otherwise is another array."""


@runtime_checkable
class FacetedScore(Faceted, Protocol):
    def score_classes(self, state: Any, nodes: Columns, rows: Rows, sizes: Callable[[Rows], Ints]) -> Ints:
        """`score` of each of `rows`, if it were asked about all that share their facets; `sizes` says how many do."""


@runtime_checkable
class EnqueueExtensions(Protocol):
    """A plugin that can say which events may make a pod it refused schedulable (KEP-4247)."""

    name: str

    def events_to_register(self) -> Sequence[ClusterEventWithHint]: ...


@runtime_checkable
class Seeing(Protocol):
    """A plugin whose hints or gate look at what the cluster is like now."""

    def seeing(self, ledger: Ledger, devices: Devices, groups: NativeGroups) -> Any:
        """The same plugin with these before its eyes. This one stays as it is: others may use it elsewhere."""


@runtime_checkable
class CleanupReservations(Protocol):
    """A plugin, at whatever point, that keeps something for pods which were let past the gate of their queue and have
    no node yet (`AddCleanupReservationsFn` of Volcano's design)."""

    name: str

    def cleanup_reservations(self, pod: PodInfo) -> None:
        """The pod's reservation in its queue has come to an end: it has a node, is gone, or has held its room for too
        long. Said once of each reservation."""


@runtime_checkable
class PreEnqueue(Protocol):
    """A plugin that can keep a pod out of the queue.

    One that keeps out only pods which say a certain thing may have `concerns`, which gives something false for all
    others: these are let in without `pre_enqueue`.
    """

    name: str

    def pre_enqueue(self, pod: PodInfo) -> str | None:
        """Why the pod has to wait, or None."""


class PostFilter(Protocol):
    """What allows the pods of a profile to have others evicted, and says how hard to look for whom."""

    name: str

    def wanted(self, nodes: int) -> int:
        """How many candidates are enough of so many nodes on which evictions might help."""

    def events_to_register(self) -> Sequence[ClusterEventWithHint]: ...


def default_normalize(scores: Ints) -> Ints:
    """Scale so that the best has 100; all zero stays zero (kube-scheduler, `DefaultNormalizeScore`)."""
    top = int(scores.max(initial=0))
    return scores if top == 0 else scores * MAX_NODE_SCORE // top


def default_normalize_reversed(scores: Ints) -> Ints:
    """As `default_normalize`, where less is better: all zero is all 100."""
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
    pre_enqueue: tuple[PreEnqueue, ...] = ()
    #: None where nobody is evicted for pods that every node refused.
    preemption: PostFilter | None = None
    reserves: tuple[Reserve, ...] = ()
    permits: tuple[Permit, ...] = ()
    pre_binds: tuple[PreBind, ...] = ()
    #: Whether its pods are told what kube-scheduler tells them, and nothing where that is silent.
    as_kube: bool = False
    #: Plugins that are asked about groups, and not about nodes, by name, and what they read.
    of_groups: tuple[tuple[str, frozenset[Reads]], ...] = ()

    @property
    def gangs(self) -> bool:
        """Whether members of a PodGroup are placed together; else each of them is a pod like any other."""
        return any(plugin.name == GANG_SCHEDULING for plugin in self.pre_enqueue)

    def without_gangs(self) -> Profile:
        others = tuple(plugin for plugin in self.pre_enqueue if plugin.name != GANG_SCHEDULING)
        return replace(self, pre_enqueue=others)

    @property
    def reads(self) -> frozenset[Reads]:
        """What its plugins read."""
        plugins: tuple[Filter | Score, ...] = (*self.filters, *(each.plugin for each in self.scores))
        return frozenset().union(
            *(plugin.reads for plugin in plugins), *(reads for _, reads in self.of_groups)
        )

    @property
    def plugin_names(self) -> frozenset[str]:
        named: list[Any] = [*self.pre_enqueue, *self.filters, *self.reserves, *self.permits, *self.pre_binds]
        named += (each.plugin for each in self.scores)
        preempting = () if self.preemption is None else (self.preemption,)
        return frozenset(each.name for each in (*named, *preempting)).union(
            name for name, _ in self.of_groups
        )

    def seeing(self, ledger: Ledger, devices: Devices, groups: NativeGroups) -> Profile:
        """The profile for one picture of a cluster. A plugin that stands in two places stays one."""
        seen: dict[int, Any] = {}
        for plugin in (*self.pre_enqueue, *self.filters, *self.reserves, *self.permits, *self.pre_binds):
            if id(plugin) not in seen:
                seen[id(plugin)] = (
                    plugin.seeing(ledger, devices, groups) if isinstance(plugin, Seeing) else plugin
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
        """Its plugins that are told of the end of reservations, each once."""
        scores = (each.plugin for each in self.scores)
        plugins = (*self.pre_enqueue, *self.filters, *scores, *self.reserves, *self.permits, *self.pre_binds)
        found = {id(plugin): plugin for plugin in plugins if isinstance(plugin, CleanupReservations)}
        return tuple(found.values())

    def hint_map(self) -> HintMap:
        """Which plugin may be cured by which event; a plugin that does not say is cured by any."""
        own_change = ClusterEventWithHint(
            ClusterEvent(Resource.TARGET_POD, ActionType.UPDATE), _own_change, own_pod
        )
        any_node = ClusterEventWithHint(ClusterEvent(Resource.NODE, ActionType.ADD))
        events: dict[str, Sequence[ClusterEventWithHint] | None] = {
            POD_SPEC: (own_change,),
            NO_NODES: (any_node,),
        }
        plugins: tuple[PreEnqueue | Filter | Permit, ...] = (*self.pre_enqueue, *self.filters, *self.permits)
        for plugin in plugins:
            events[plugin.name] = (
                plugin.events_to_register() if isinstance(plugin, EnqueueExtensions) else None
            )
        if self.preemption is not None:
            events[self.preemption.name] = self.preemption.events_to_register()
        return HintMap(events)


def _own_change(pod: PodInfo, old: object | None, new: object | None) -> QueueingHint:
    return QueueingHint.QUEUE if isinstance(new, PodInfo) and new.uid == pod.uid else QueueingHint.SKIP
