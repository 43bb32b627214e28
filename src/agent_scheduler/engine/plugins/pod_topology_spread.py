"""PodTopologySpread: keeps the pods of a kind evenly spread over zones, nodes or other domains.

Required constraints (DoNotSchedule) refuse nodes whose domain would exceed the smallest one by more than maxSkew; the
others (ScheduleAnyway) rank. Rules and formulas are kube-scheduler's (`podtopologyspread`, `filtering.go` and
`scoring.go`). Pods without constraints may get default ones (`DefaultSpread`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from apimachinery.labels import Labels
from apimachinery.quantity import MAX_INT64

from ..events.events import ActionType, ClusterEvent, Resource
from ..events.hints import ClusterEventWithHint, QueueingHint
from ..events.prehints import ByKeys, Key, PodIndex, own_pod
from ..framework.args import PodTopologySpreadArgs
from ..framework.handle import Handle
from ..framework.plugin import MAX_NODE_SCORE, Depends, Filter, Reads, Score
from ..rules.spreading import (
    HOSTNAME,
    SYSTEM_DEFAULTS,
    CountedConstraint,
    DefaultSpread,
    Floats,
    Layout,
    Spreading,
    matching,
    spreading,
)
from ..state.columns import Bools, Columns, Ints, Rows
from ..state.nodeinfo import NodeInfo
from ..state.podclass import PodClass
from ..state.podinfo import PodInfo
from ..state.podterms import SpreadConstraint

REASON = "node(s) didn't match pod topology spread constraints"
REASON_MISSING = f"{REASON} (missing required label)"

# The answers for a row: that of the first constraint that refuses it.
_PASSES: Final = 0
_MISSING: Final = 1
_SKEWED: Final = 2

#: The raw score of a node that lacks a key, which ranks last.
_IGNORED: Final = -1

#: The count of a node in no domain: it indexes the last entry of a table.
_NO_DOMAIN: Final = -1

#: Tables of weighted counts. A cluster has few numbers of domains, but the number of single-node domains varies as
#: nodes fill up.
_WORTHS_KEPT: Final = 128


def default_spread(args: PodTopologySpreadArgs) -> DefaultSpread:
    if args.defaulting_type == "System":
        return SYSTEM_DEFAULTS
    return DefaultSpread(
        tuple(
            SpreadConstraint(
                max_skew=each.max_skew,
                topology_key=each.topology_key,
                required=each.when_unsatisfiable == "DoNotSchedule",
                selector=None,
                min_domains=each.min_domains or 1,
                honors_affinity=each.node_affinity_policy != "Ignore",
                honors_taints=each.node_taints_policy == "Honor",
            )
            for each in args.default_constraints
        )
    )


def _even(each: CountedConstraint, layout: Layout, nodes: Columns, here: Ints) -> Bools:
    """Return for each of the domains `here` whether it stays within the allowed skew; false for no domain."""
    constraint = each.constraint
    counts = layout.sums(each, nodes)
    least = int(counts[layout.known].min()) if layout.number >= constraint.min_domains else 0
    even: Bools = (counts[here] <= constraint.max_skew + least - each.itself) & (here != 0)
    return even


class PodTopologySpread(Filter):
    """The filter. `PodTopologySpreadScore` ranks; each may be left out for a pod without the other."""

    name = "PodTopologySpread"
    depends = Depends.CLUSTER
    reads_requests = False

    def __init__(self, defaults: DefaultSpread = SYSTEM_DEFAULTS) -> None:
        self.defaults = defaults
        self.reads = frozenset({Reads.OWNERS}) if defaults.constraints else frozenset()

    def prepare(self, pod: PodClass, handle: Handle) -> Spreading | None:
        return spreading(pod, handle, self.defaults, required=True)

    def feasible(self, state: Spreading, nodes: Columns, rows: Rows) -> Bools:
        layouts = ((each, state.layout(each, nodes)) for each in state.counted)
        first, *others = (_even(each, layout, nodes, layout.all.here(rows)) for each, layout in layouts)
        for passes in others:
            first &= passes
        return first

    def facets(self, state: Spreading, nodes: Columns) -> tuple[Ints, ...]:
        layouts = ((each, state.layout(each, nodes)) for each in state.counted)
        return tuple(facet for each, layout in layouts for facet in layout.facets(each, nodes))

    @staticmethod
    def _verdicts(state: Spreading, nodes: Columns, rows: Rows) -> Ints:
        """Return [row] the answer of the first constraint that refuses it."""
        verdicts: Ints = np.zeros(rows.shape[0], dtype=np.int64)
        for each in state.counted:
            layout = state.layout(each, nodes)
            here = layout.all.here(rows)
            refusal = np.where(here == 0, _MISSING, _SKEWED)
            refused = ~_even(each, layout, nodes, here) & (verdicts == _PASSES)
            verdicts[refused] = refusal[refused]
        return verdicts

    def reasons(self, state: Spreading, nodes: Columns, rows: Rows) -> Mapping[str, int]:
        missing = int(np.count_nonzero(self._verdicts(state, nodes, rows) == _MISSING))
        counts = {REASON_MISSING: missing, REASON: rows.shape[0] - missing}
        return {reason: count for reason, count in counts.items() if count}

    def curable(self, state: Spreading, nodes: Columns, rows: Rows) -> Bools:
        """Return the skewed rows: evictions change the skew, but add no missing label."""
        skewed: Bools = self._verdicts(state, nodes, rows) == _SKEWED
        return skewed

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        others = ActionType.ADD | ActionType.UPDATE_POD_LABEL | ActionType.DELETE
        own = ActionType.UPDATE_POD_LABEL | ActionType.UPDATE_POD_TOLERATION
        changes = ActionType.ADD | ActionType.DELETE | ActionType.UPDATE_NODE_LABEL | ActionType.UPDATE_NODE_TAINT
        return (
            ClusterEventWithHint(
                ClusterEvent(Resource.ASSIGNED_POD, others), _other_pod, ByKeys(_INDEX, _keys_of_pods, once=True)
            ),
            ClusterEventWithHint(ClusterEvent(Resource.TARGET_POD, own), _own_change, own_pod),
            ClusterEventWithHint(ClusterEvent(Resource.NODE, changes), _node, ByKeys(_INDEX, _keys_of_node, once=True)),
        )


def _required(pod: PodInfo) -> list[SpreadConstraint]:
    """Return the required constraints; empty for a pod refused by default ones, whose selector is unknown here."""
    return [each for each in pod.cls.spread if each.required]


def _means(constraint: SpreadConstraint, pod: PodInfo | None) -> bool:
    selector = constraint.selector
    return pod is not None and selector is not None and selector.matches(pod.labels)


def _other_pod(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """Queue the pod if an assigned pod was added, deleted or relabeled such that the counts change."""
    assert isinstance(pod, PodInfo)
    before, after = (each if isinstance(each, PodInfo) else None for each in (old, new))
    if any(each is not None and each.namespace != pod.namespace for each in (before, after)):
        return QueueingHint.SKIP
    required = _required(pod)
    counts = any(_means(each, before) != _means(each, after) for each in required)
    return QueueingHint.QUEUE if counts or not required else QueueingHint.SKIP


def _own_change(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """Queue the pod if its change affects the counts: its labels, its constraints, or its tolerated nodes."""
    assert isinstance(pod, PodInfo) and isinstance(old, PodInfo) and isinstance(new, PodInfo)
    if new.uid != pod.uid:
        return QueueingHint.SKIP
    required = _required(new)
    helps = (
        (old.labels != new.labels and (not required or required != _required(old)))
        or any(_means(each, old) != _means(each, new) for each in required)
        or (old.tolerations != new.tolerations and any(each.honors_taints for each in required))
    )
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _node(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """Queue the pod if a counted node was added, deleted or moved, or if its inclusion may have changed."""
    assert isinstance(pod, PodInfo)
    before, after = (each if isinstance(each, NodeInfo) else None for each in (old, new))
    required = _required(pod)
    if not required:
        return QueueingHint.QUEUE
    keys = [each.topology_key for each in required]
    was, now = _carries(before, keys), _carries(after, keys)
    helps = was is not now
    if not helps and now and before is not None and after is not None:
        helps = (
            any(before.labels.get(key) != after.labels.get(key) for key in keys)
            or (before.taints != after.taints and any(each.honors_taints for each in required))
            or (before.labels != after.labels and _chooses_nodes(pod.cls, required))
        )
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _keys_of_waiting(pod: PodInfo) -> Iterable[Key]:
    """Yield for each constraint the namespace and a required label of its pods; and one topology key."""
    required = _required(pod)
    if not required:
        yield from ((pod.namespace, None), _UNTIED)
        return
    yield ("topology", required[0].topology_key)
    for each in required:
        if each.selector is not None:
            yield (pod.namespace, each.selector.pins)


def _keys_of_pods(event: ClusterEvent, old: PodInfo | None, new: PodInfo | None) -> Iterable[Key]:
    for each in (old, new):
        if each is not None:
            yield (each.namespace, None)
            for label in each.labels.items():
                yield (each.namespace, label)


def _keys_of_node(event: ClusterEvent, old: NodeInfo | None, new: NodeInfo | None) -> Iterable[Key]:
    yield _UNTIED
    for each in (old, new):
        if each is not None:
            for key in each.labels:
                yield ("topology", key)


#: A key of pods that were refused by default constraints.
_UNTIED: Final = "untied"

_INDEX = PodIndex(keys_of=_keys_of_waiting, shared=lambda pod: (pod.cls, pod.namespace))


def _carries(node: NodeInfo | None, keys: Sequence[str]) -> bool:
    labels: Labels = {} if node is None else node.labels
    return all(key in labels for key in keys)


def _chooses_nodes(pod: PodClass, required: Sequence[SpreadConstraint]) -> bool:
    """Return whether labels other than the keys may select the nodes that count."""
    chooses = bool(pod.node_selector) or (pod.affinity is not None and pod.affinity.required is not None)
    return chooses and any(each.honors_affinity for each in required)


def _fewest_first(scores: Ints) -> Ints:
    least = int(np.minimum.reduce(scores, initial=MAX_INT64))
    if least == _IGNORED:
        ranked = scores != _IGNORED
        found = np.zeros_like(scores)
        found[ranked] = _fewest_first(scores[ranked])
        return found
    most = int(np.maximum.reduce(scores, initial=0))
    if most == 0:
        return np.full_like(scores, MAX_NODE_SCORE)
    return MAX_NODE_SCORE * (most + least - scores) // most


class PodTopologySpreadScore(Score):
    """The ranking half.

    It is asked about all feasible nodes at once because the number of their domains is a weight.
    """

    name = "PodTopologySpread"
    depends = Depends.CLUSTER
    reads_requests = False
    normalize = staticmethod(_fewest_first)

    def __init__(self, defaults: DefaultSpread = SYSTEM_DEFAULTS) -> None:
        self.defaults = defaults
        self.reads = frozenset({Reads.OWNERS}) if defaults.constraints else frozenset()

    def prepare(self, pod: PodClass, handle: Handle) -> Spreading | None:
        return spreading(pod, handle, self.defaults, required=False)

    def score(self, state: Spreading, nodes: Columns, rows: Rows) -> Ints:
        return self._scores(state, nodes, rows, lambda carriers: carriers.shape[0])

    def facets(self, state: Spreading, nodes: Columns) -> tuple[Ints, ...]:
        found: list[Ints] = []
        for each in state.counted:
            domains = state.layout(each, nodes).all
            if each.constraint.topology_key == HOSTNAME:
                found.append(domains.marks())
                if each.kind is not None:
                    found.append(nodes.matching[each.kind])
            else:
                # The number of domains is a weight, so rows of two domains are never in one class.
                found.append(domains.of)
        return tuple(found)

    def score_classes(self, state: Spreading, nodes: Columns, rows: Rows, sizes: Callable[[Rows], Ints]) -> Ints:
        return self._scores(state, nodes, rows, lambda carriers: int(np.add.reduce(sizes(carriers))))

    def _scores(self, state: Spreading, nodes: Columns, rows: Rows, number: Callable[[Rows], int]) -> Ints:
        """Score the rows; `number` returns the number of rows that some rows represent."""
        ranked = state.carriers(nodes)[rows]
        all_ranked = np.count_nonzero(ranked) == ranked.shape[0]
        carriers = rows if all_ranked else rows[ranked]
        (worths, places), *others = (self._of(each, state, nodes, carriers, number) for each in state.counted)
        if others:
            total = _rounded(sum((more.exact[where] for more, where in others), worths.exact[places]))
        else:
            total = worths.rounded[places]
        if all_ranked:
            return total
        scores: Ints = np.full(rows.shape[0], _IGNORED, dtype=np.int64)
        scores[ranked] = total
        return scores

    @staticmethod
    def _of(
        each: CountedConstraint, state: Spreading, nodes: Columns, carriers: Rows, number: Callable[[Rows], int]
    ) -> tuple[_Worths, Ints]:
        """Return the constraint's weighted counts, and the count for each of the `carriers`."""
        layout = state.layout(each, nodes)
        here = layout.all.here(carriers)
        if each.constraint.topology_key != HOSTNAME:
            domains = layout.all.distinct(carriers)
            counts = layout.sums(each, nodes)[here]
        else:
            # A node is a domain of its own, whatever the policies.
            domains = number(carriers)
            counts = matching(each, nodes)[carriers]
        if state.lenient:
            counts = np.where(here == 0, _NO_DOMAIN, counts)
        # Rounded up to a power of two, so that there are few tables.
        most = 1 << int(np.maximum.reduce(counts, initial=0)).bit_length()
        return _worths(domains, each.constraint.max_skew, most), counts


class _Worths(NamedTuple):
    """[number of pods in a domain] its weight, and 0 for `_NO_DOMAIN`."""

    exact: Floats
    rounded: Ints


@functools.lru_cache(maxsize=_WORTHS_KEPT)
def _worths(domains: int, max_skew: int, most: int) -> _Worths:
    """Return the weights of up to `most` pods; an excess pod weighs more with more domains. Read only."""
    # In this order: the last digit of a double decides the resulting integer.
    weighed: Floats = np.multiply(np.arange(most + 2), math.log(domains + 2), dtype=np.float64)
    exact = weighed + (max_skew - 1)
    exact[_NO_DOMAIN] = 0
    return _Worths(exact, _rounded(exact))


def _rounded(worth: Floats) -> Ints:
    whole: Ints = np.floor(worth).astype(np.int64)
    whole += worth - whole >= 0.5
    return whole
