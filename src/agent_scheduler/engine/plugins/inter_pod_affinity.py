"""InterPodAffinity: refuses and ranks nodes by the other pods in their domains.

Required terms of the pod refuse nodes, required anti-affinity of running pods refuses nodes to the pods that it
matches, and preferred terms of either side rank. Rules are kube-scheduler's (`interpodaffinity`, `filtering.go` and
`scoring.go`): a domain counts by its sum over all nodes that share the label's value; a pod that matches its own
affinity may go to any node while no pod matches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ..events.hints import ClusterEventWithHint
from ..framework.handle import Handle
from ..framework.plugin import MAX_NODE_SCORE, Depends, Filter, Score
from ..rules.affinity_hints import affinity_events
from ..rules.topology import Domains
from ..state.columns import Bools, Columns, Ints, Rows
from ..state.podclass import PodClass
from ..state.podcounts import PodsMatching
from ..state.podterms import ExistingTerm, TermKind

REASON_AFFINITY = "node(s) didn't match pod affinity rules"
REASON_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
REASON_EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"


class RequiredTerms:
    """The required terms of a class, with their counts."""

    __slots__ = ("affinity_keys", "anti_affinity", "is_its_own_like", "like", "repelled_by")

    def __init__(self, pod: PodClass, handle: Handle) -> None:
        terms = pod.terms
        #: Pods that match all terms of the affinity; a pod that matches only some satisfies none of them.
        self.like = handle.count([term.match for term in terms.affinity]) if terms.affinity else None
        self.affinity_keys = tuple(dict.fromkeys(term.topology_key for term in terms.affinity))
        self.is_its_own_like = all(
            handle.resolve(term.match).means(pod.namespace, pod.labels) for term in terms.affinity
        )
        self.anti_affinity: tuple[tuple[str, PodsMatching], ...] = tuple(
            (term.topology_key, handle.count([term.match])) for term in terms.anti_affinity
        )
        self.repelled_by = tuple(each for each in pod.matching_terms if each.kind is TermKind.REPELS)


def _facets(counted: Iterable[tuple[str, Ints]], nodes: Columns) -> tuple[Ints, ...]:
    """Return the facets of rows by counts in the domains of some keys."""
    return tuple(facet for key, counts in counted for facet in Domains.along(key, nodes).facets(counts))


def _anybody(counted: Iterable[tuple[str, Ints]], nodes: Columns, rows: Rows) -> Bools:
    """Return whether, for any (topology key, counts by row), the domain of each of `rows` has a counted pod."""
    found = None
    for key, counts in counted:
        domains = Domains.along(key, nodes)
        there: Bools = domains.sums(counts, nodes.counted)[domains.here(rows)] > 0
        found = there if found is None else found | there
    return np.zeros(rows.shape[0], dtype=np.bool_) if found is None else found


class InterPodAffinity(Filter):
    name = "InterPodAffinity"
    depends = Depends.CLUSTER
    reads_requests = False

    def prepare(self, pod: PodClass, handle: Handle) -> RequiredTerms | None:
        terms = pod.terms
        if not (terms.affinity or terms.anti_affinity) and all(
            each.kind is not TermKind.REPELS for each in pod.matching_terms
        ):
            return None
        return RequiredTerms(pod, handle)

    def feasible(self, state: RequiredTerms, nodes: Columns, rows: Rows) -> Bools:
        near = self._near(state, nodes, rows)
        if state.anti_affinity:
            near &= ~self._repelling(state, nodes, rows)
        if state.repelled_by:
            near &= ~self._repelled(state, nodes, rows)
        return near

    def facets(self, state: RequiredTerms, nodes: Columns) -> tuple[Ints, ...]:
        counted = [(key, nodes.matching[kind]) for key, kind in state.anti_affinity]
        if state.like is not None:
            counted += [(key, nodes.matching[state.like]) for key in state.affinity_keys]
        counted += [(each.term.topology_key, nodes.terms[each]) for each in state.repelled_by]
        return _facets(counted, nodes)

    @staticmethod
    def _near(state: RequiredTerms, nodes: Columns, rows: Rows) -> Bools:
        """Return whether the affinity is satisfied. A node must have every key.

        If no pod matches anywhere, a pod that matches its own affinity is excused.
        """
        if state.like is None:
            return np.ones(rows.shape[0], dtype=np.bool_)
        counts = nodes.matching[state.like]
        domains_of, beside, anybody = [], [], False
        for key in state.affinity_keys:
            domains = Domains.along(key, nodes)
            sums, there = domains.sums(counts, nodes.counted), domains.here(rows)
            domains_of.append(there)
            # The domain 0, of nodes without the key, has no pods.
            beside.append(sums[there] > 0)
            anybody = anybody or bool(sums.any())
        if not anybody and state.is_its_own_like:
            beside = [there != 0 for there in domains_of]
        return beside[0] if len(beside) == 1 else np.logical_and.reduce(beside)

    @staticmethod
    def _repelling(state: RequiredTerms, nodes: Columns, rows: Rows) -> Bools:
        """Return where a pod is that the class's own anti-affinity repels."""
        return _anybody(((key, nodes.matching[kind]) for key, kind in state.anti_affinity), nodes, rows)

    @staticmethod
    def _repelled(state: RequiredTerms, nodes: Columns, rows: Rows) -> Bools:
        """Return where a pod is whose anti-affinity repels the class."""
        terms = ((each.term.topology_key, nodes.terms[each]) for each in state.repelled_by)
        return _anybody(terms, nodes, rows)

    def reasons(self, state: RequiredTerms, nodes: Columns, rows: Rows) -> Mapping[str, int]:
        counts: dict[str, int] = {}
        far = ~self._near(state, nodes, rows)
        repelling = ~far & self._repelling(state, nodes, rows)
        for reason, mask in (
            (REASON_AFFINITY, far),
            (REASON_ANTI_AFFINITY, repelling),
            (REASON_EXISTING, ~far & ~repelling),
        ):
            if number := int(np.count_nonzero(mask)):
                counts[reason] = number
        return counts

    def curable(self, state: RequiredTerms, nodes: Columns, rows: Rows) -> Bools:
        """Return where the affinity is satisfied: evictions do not bring the pods that it requires."""
        return self._near(state, nodes, rows)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return affinity_events()


class PreferredTerms:
    """The weights of a class by domain: (topology key, weight, counted pods)."""

    __slots__ = ("existing", "own")

    def __init__(
        self, own: tuple[tuple[str, int, PodsMatching], ...], existing: tuple[tuple[int, ExistingTerm], ...]
    ) -> None:
        self.own = own
        self.existing = existing


class InterPodAffinityScore(Score):
    """The ranking half of `InterPodAffinity`."""

    name = "InterPodAffinity"
    depends = Depends.CLUSTER
    reads_requests = False

    def __init__(
        self, *, hard_pod_affinity_weight: int = 1, ignore_preferred_terms_of_existing_pods: bool = False
    ) -> None:
        """Store the weight of a running pod's required affinity, 0 to 100.

        With `ignore_preferred_terms_of_existing_pods`, preferences of existing pods do not count for pods without their
        own.
        """
        self._hard_weight = hard_pod_affinity_weight
        self._ignores_existing = ignore_preferred_terms_of_existing_pods

    def prepare(self, pod: PodClass, handle: Handle) -> PreferredTerms | None:
        terms = pod.terms
        own = (*terms.preferred, *((-weight, term) for weight, term in terms.preferred_anti))
        existing: list[tuple[int, ExistingTerm]] = []
        if own or not self._ignores_existing:
            for each in pod.matching_terms:
                weight = self._hard_weight if each.kind is TermKind.REQUIRES else each.weight
                if weight:
                    existing.append((weight, each))
        if not own and not existing:
            return None
        counted = tuple((term.topology_key, weight, handle.count([term.match])) for weight, term in own)
        return PreferredTerms(counted, tuple(existing))

    def score(self, state: PreferredTerms, nodes: Columns, rows: Rows) -> Ints:
        total: Ints = np.zeros(rows.shape[0], dtype=np.int64)
        for key, weight, kind in state.own:
            domains = Domains.along(key, nodes)
            total += weight * domains.sums(nodes.matching[kind], nodes.counted)[domains.here(rows)]
        for weight, each in state.existing:
            domains = Domains.along(each.term.topology_key, nodes)
            total += weight * domains.sums(nodes.terms[each], nodes.counted)[domains.here(rows)]
        return total

    def facets(self, state: PreferredTerms, nodes: Columns) -> tuple[Ints, ...]:
        counted = [(key, nodes.matching[kind]) for key, _, kind in state.own]
        counted += [(each.term.topology_key, nodes.terms[each]) for _, each in state.existing]
        return _facets(counted, nodes)

    def score_classes(self, state: PreferredTerms, nodes: Columns, rows: Rows, sizes: Callable[[Rows], Ints]) -> Ints:
        return self.score(state, nodes, rows)

    @staticmethod
    def normalize(scores: Ints) -> Ints:
        """Scale the lowest to highest score to 0 to 100; all equal is 0."""
        if not scores.size:
            return scores
        # For few rows, as of facet classes, the methods of arrays take twice as long.
        least = np.minimum.reduce(scores)
        spread = float(np.maximum.reduce(scores) - least)
        if not spread:
            return np.zeros_like(scores)
        # In this order, and truncated: the last digit of a double decides the resulting integer.
        scaled: Ints = (MAX_NODE_SCORE * ((scores - least) / spread)).astype(np.int64)
        return scaled
