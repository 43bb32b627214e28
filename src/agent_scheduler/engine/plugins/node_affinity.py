"""NodeAffinity: `nodeSelector` and required terms refuse nodes, preferred terms rank them.

An affinity may be enforced on all pods of a profile (the argument `addedAffinity`): a node has to match it in addition
to the pod's own, and its preferences are added to the pod's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from agent_scheduler.objects import wire
from agent_scheduler.objects.wire import NodeSelector, NodeSelectorTerm, PreferredSchedulingTerm

from ..events.events import ActionType, ClusterEvent, Resource
from ..events.hints import ClusterEventWithHint, QueueingHint
from ..events.prehints import ANYWAY, ByKeys, Key, PodIndex
from ..framework.handle import Handle
from ..framework.plugin import Depends, Filter, PodRejected, PodUnrankable, Score, default_normalize
from ..state.columns import NODE_NAME, Bools, Columns, Ints, Rows
from ..state.interns import Interns
from ..state.nodeinfo import NodeInfo
from ..state.nodeselection import match_labels, match_selector, match_term
from ..state.podclass import PodClass
from ..state.podinfo import PodInfo
from ..state.podspec import faults_of

REASON = "node(s) didn't match Pod's node affinity/selector"
REASON_NAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
CONFLICT = "pod affinity terms conflict"
REASON_ENFORCED = "node(s) didn't match scheduler-enforced node affinity"


class NodeAffinityState(NamedTuple):
    """The conditions that a node has to match."""

    labels: Mapping[str, str]
    required: NodeSelector | None
    enforced: NodeSelector | None


class NodeNames(Filter):
    """Restricts pods to the nodes that all required terms name, such as the pods of a DaemonSet.

    kube-scheduler checks only these nodes and reports that all others do not satisfy NodeAffinity.
    """

    name = "NodeAffinity"
    depends = Depends.NODE
    reads_requests = False
    reason = REASON_NAMED

    def prepare(self, pod: PodClass, handle: Handle) -> frozenset[str] | None:
        required = pod.affinity.required if pod.affinity else None
        found: set[str] = set()
        for term in (required.node_selector_terms or ()) if required else ():
            names = _named(term)
            if names is None:
                return None
            found |= names
        if required is not None and required.node_selector_terms and not found:
            raise PodRejected(CONFLICT)
        return frozenset(found) or None

    def feasible(self, state: frozenset[str], nodes: Columns, rows: Rows) -> Bools:
        column = nodes.label(NODE_NAME)  # The column comes first because it interns the names.
        return np.isin(column[rows], [nodes.interns.known_value(name) for name in state])


def _named(term: NodeSelectorTerm) -> frozenset[str] | None:
    """Return the names that the term allows; None if it allows all."""
    names: frozenset[str] | None = None
    for requirement in term.match_fields or ():
        if requirement.operator == "In":
            values = frozenset(requirement.values or ())
            names = values if names is None else names & values
    return names


class NodeAffinity(Filter):
    """The filter. `NodeAffinityScore` ranks; each may be left out for a pod without the other."""

    name = "NodeAffinity"
    depends = Depends.NODE
    reads_requests = False

    def __init__(self, enforced: wire.NodeAffinity | None = None, *, narrows: bool = True) -> None:
        """Apply `enforced` to every pod, in addition to its own affinity.

        `narrows` is whether nodes that the terms do not name have a reason of their own.
        """
        self._enforced = enforced.required if enforced else None
        self.narrowing = NodeNames() if narrows else None

    def prepare(self, pod: PodClass, handle: Handle) -> NodeAffinityState | None:
        return self._wanted(pod)

    def _wanted(self, pod: PodClass) -> NodeAffinityState | None:
        required = pod.affinity.required if pod.affinity else None
        if not pod.node_selector and required is None and self._enforced is None:
            return None
        return NodeAffinityState(pod.node_selector, required, self._enforced)

    def feasible(self, state: NodeAffinityState, nodes: Columns, rows: Rows) -> Bools:
        mask = match_labels(state.labels, nodes, rows)
        for selector in (state.required, state.enforced):
            if selector is not None:
                mask &= match_selector(selector, nodes, rows)
        return mask

    def reasons(self, state: NodeAffinityState, nodes: Columns, rows: Rows) -> Mapping[str, int]:
        enforced = 0
        if state.enforced is not None:
            enforced = int(np.count_nonzero(~match_selector(state.enforced, nodes, rows)))
        counts = {REASON_ENFORCED: enforced, REASON: rows.shape[0] - enforced}
        return {reason: count for reason, count in counts.items() if count}

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(
                ClusterEvent(Resource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL),
                self._now_matches,
                ByKeys(_BY_LABEL, _labels_of, once=True),
            ),
        )

    def _now_matches(self, pod: object, old: object | None, new: object | None) -> QueueingHint:
        assert isinstance(pod, PodInfo) and isinstance(new, NodeInfo)
        was = isinstance(old, NodeInfo) and self._matches(pod.cls, old)
        return QueueingHint.QUEUE if not was and self._matches(pod.cls, new) else QueueingHint.SKIP

    def _matches(self, pod: PodClass, node: NodeInfo) -> bool:
        """Return the filter's answer for one node outside of all columns."""
        alone = Columns(Interns())
        alone.reserve(1)
        alone.size = 1
        alone.nodes[0] = node
        state = self._wanted(pod)
        # Label columns come first: they intern the values that the comparison then looks up.
        for key in node.labels:
            alone.label(key)
        return state is None or bool(self.feasible(state, alone, np.zeros(1, dtype=np.intp))[0])


def _asked_labels(pod: PodInfo) -> Iterable[Key]:
    """Return keys of which every feasible node has one: those of the requirement with the fewest values."""
    cls = pod.cls
    if cls.node_selector:
        # The longest value is most likely a name, which is the most selective.
        return (max(cls.node_selector.items(), key=lambda pair: (len(pair[1]), pair)),)
    required = cls.affinity.required if cls.affinity else None
    if required is None:
        return (ANYWAY,)
    keys: set[Key] = set()
    for term in required.node_selector_terms or ():
        if _is_empty(term):
            continue
        values: list[list[Key]] = [
            [(each.key, value) for value in each.values or ()]
            for each in term.match_expressions or ()
            if each.operator == "In"
        ]
        names = _named(term)
        if names is not None:
            values.append([(NODE_NAME, name) for name in names])
        fewest: list[Key] = sorted(values, key=len)[0] if values else [ANYWAY]
        keys.update(fewest)
    return keys


def _labels_of(event: ClusterEvent, old: NodeInfo | None, new: NodeInfo) -> list[Key]:
    return [ANYWAY, (NODE_NAME, new.name), *new.labels.items()]


_BY_LABEL = PodIndex(keys_of=_asked_labels, shared=lambda pod: pod.cls)


def _is_empty(term: NodeSelectorTerm) -> bool:
    return not term.match_expressions and not term.match_fields


def _with_weight(affinity: wire.NodeAffinity | None) -> list[PreferredSchedulingTerm]:
    """Return the preferences that have an effect."""
    preferred = (affinity.preferred if affinity else None) or ()
    return [term for term in preferred if term.weight and not _is_empty(term.preference)]


class NodeAffinityScore(Score):
    name = "NodeAffinity"
    depends = Depends.NODE
    reads_requests = False
    normalize = staticmethod(default_normalize)

    def __init__(self, enforced: wire.NodeAffinity | None = None) -> None:
        """Store the preferences of the enforced affinity."""
        self._enforced = _with_weight(enforced)

    def prepare(self, pod: PodClass, handle: Handle) -> list[PreferredSchedulingTerm] | None:
        faults = [
            fault
            for index, term in enumerate((pod.affinity.preferred if pod.affinity else None) or ())
            if term.weight
            for fault in faults_of(term.preference, f"[{index}]")
        ]
        if faults:
            # Formatted like Go's errors: a list in brackets, a single one without.
            raise PodUnrankable(faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]")
        return [*self._enforced, *_with_weight(pod.affinity)] or None

    def score(self, state: list[PreferredSchedulingTerm], nodes: Columns, rows: Rows) -> Ints:
        total: Ints = np.zeros(rows.shape[0], dtype=np.int64)
        for term in state:
            total += term.weight * match_term(term.preference, nodes, rows)
        return total
