"""NodeAffinity: `nodeSelector` and required terms refuse nodes, preferred terms rank them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from agent_scheduler.objects.wire import NodeSelector, NodeSelectorTerm, PreferredSchedulingTerm

from ..columns import Bools, Columns, Interns, Ints, Rows
from ..framework import Depends, Filter, Score, default_normalize
from ..handle import Handle
from ..nodeinfo import NodeInfo
from ..nodeselection import match_labels, match_selector, match_term
from ..podclass import PodClass
from ..podinfo import PodInfo
from ..queueing.events import ActionType, ClusterEvent, Resource
from ..queueing.hints import ClusterEventWithHint, QueueingHint

REASON = "node(s) didn't match Pod's node affinity/selector"


class NodeAffinity(Filter):
    """The filter. Its ranking half is `NodeAffinityScore`, since either may have nothing to say for a pod."""

    name = "NodeAffinity"
    depends = Depends.NODE

    def prepare(self, pod: PodClass, handle: Handle) -> tuple[Mapping[str, str], NodeSelector | None] | None:
        return _wanted(pod)

    def feasible(
        self, state: tuple[Mapping[str, str], NodeSelector | None], nodes: Columns, rows: Rows
    ) -> Bools:
        labels, required = state
        mask = match_labels(labels, nodes, rows)
        if required is not None:
            mask &= match_selector(required, nodes, rows)
        return mask

    def reasons(
        self, state: tuple[Mapping[str, str], NodeSelector | None], nodes: Columns, rows: Rows
    ) -> Mapping[str, int]:
        return {REASON: rows.shape[0]}

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(
                ClusterEvent(Resource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL), self._now_matches
            ),
        )

    def _now_matches(self, pod: object, old: object | None, new: object | None) -> QueueingHint:
        assert isinstance(pod, PodInfo) and isinstance(new, NodeInfo)
        was = isinstance(old, NodeInfo) and self._matches(pod.cls, old)
        return QueueingHint.QUEUE if not was and self._matches(pod.cls, new) else QueueingHint.SKIP

    def _matches(self, pod: PodClass, node: NodeInfo) -> bool:
        """The filter on one node, that stands in no column."""
        alone = Columns(Interns())
        alone.reserve(1)
        alone.size = 1
        alone.nodes[0] = node
        state = _wanted(pod)
        # Label columns come first: they intern the values that the comparison then looks up.
        for key in node.labels:
            alone.label(key)
        return state is None or bool(self.feasible(state, alone, np.zeros(1, dtype=np.intp))[0])


def _wanted(pod: PodClass) -> tuple[Mapping[str, str], NodeSelector | None] | None:
    required = pod.affinity.required if pod.affinity else None
    return (pod.node_selector, required) if pod.node_selector or required else None


def _is_empty(term: NodeSelectorTerm) -> bool:
    return not term.match_expressions and not term.match_fields


class NodeAffinityScore(Score):
    name = "NodeAffinity"
    depends = Depends.NODE
    normalize = staticmethod(default_normalize)

    def prepare(self, pod: PodClass, handle: Handle) -> list[PreferredSchedulingTerm] | None:
        terms = [
            term
            for term in ((pod.affinity.preferred if pod.affinity else None) or ())
            if term.weight and not _is_empty(term.preference)
        ]
        return terms or None

    def score(self, state: list[PreferredSchedulingTerm], nodes: Columns, rows: Rows) -> Ints:
        total: Ints = np.zeros(rows.shape[0], dtype=np.int64)
        for term in state:
            total += term.weight * match_term(term.preference, nodes, rows)
        return total
