"""Counts of pods per row that match the terms of other pods.

Rules across nodes (pod affinity, topology spread) need the number of matching pods in a topology domain. The ledger
keeps one column for each kind of pods that a plugin asks about, and updates it with each pod. So an answer is a sum
over a column, without iterating over pods. In a cluster of plain pods there is no such column.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from apimachinery.labels import Labels

from .indexes import drop_entry
from .namespaces import Namespaces
from .podinfo import PodInfo
from .podterms import ExistingTerm, PodMatch


class PodsMatching:
    """A kind of pods: those that satisfy all of `matches`, which must be resolved.

    Equal only to itself: its column exists while it is referenced.
    """

    __slots__ = ("__weakref__", "_last", "alive_only", "matches")

    def __init__(self, matches: Iterable[PodMatch], *, alive_only: bool = False) -> None:
        """Define the kind; `alive_only` excludes terminating pods."""
        self.matches = tuple(matches)
        self.alive_only = alive_only
        assert all(each.is_resolved for each in self.matches), "resolve it first"
        #: The last namespace, labels and result: consecutive pods often have equal ones.
        self._last: tuple[str, Labels, bool] | None = None

    def counts(self, pod: PodInfo) -> bool:
        if self.alive_only and pod.deleting:
            return False
        namespace, labels, last = pod.namespace, pod.labels, self._last
        if last is not None and last[1] == labels and last[0] == namespace:
            return last[2]
        means = all(match.means(namespace, labels) for match in self.matches)
        self._last = (namespace, labels, means)
        return means


class TermIndex:
    """The terms of all placed pods, each with the number of pods that have it. Owner: the ledger.

    Terms are indexed by namespace and by a label that their selector requires, so a pod is compared with few of them.
    """

    def __init__(self) -> None:
        #: Term -> number of occurrences in placed pods. Read-only for others.
        self.counts: dict[ExistingTerm, int] = {}
        #: Term -> its position in the order of first occurrence; a term that was removed gets a new one.
        self._numbers: dict[ExistingTerm, int] = {}
        self._next = itertools.count()
        #: Increases whenever the result of `matching` may change.
        self.version = 0
        #: (namespace, (label key, value)) -> terms; None for a part that a term does not determine.
        self._index: dict[tuple[str | None, tuple[str, str] | None], dict[ExistingTerm, None]] = {}

    def __contains__(self, term: ExistingTerm) -> bool:
        return term in self.counts

    def add(self, term: ExistingTerm) -> bool:
        """Add an occurrence of a term. Returns whether it is the first."""
        count = self.counts.get(term, 0)
        self.counts[term] = count + 1
        if not count:
            self.version += 1
            self._numbers[term] = next(self._next)
            for place in _places(term):
                self._index.setdefault(place, {})[term] = None
        return not count

    def remove(self, term: ExistingTerm) -> bool:
        """Remove an occurrence of a term. Returns whether it was the last."""
        count = self.counts[term]
        if count > 1:
            self.counts[term] = count - 1
            return False
        self.version += 1
        del self.counts[term], self._numbers[term]
        for place in _places(term):
            drop_entry(self._index, place, term)
        return True

    def matching(self, namespace: str, labels: Labels, namespaces: Namespaces) -> tuple[ExistingTerm, ...]:
        """Return the terms that match a pod with these labels; equal sets of terms are in equal order."""
        if not self.counts:
            return ()
        found: list[ExistingTerm] = []
        index = self._index
        # Each term is found once: it is indexed by at most one label, and either by its namespaces or by none.
        for pins in (None, *labels.items()):
            for where in (namespace, None):
                if terms := index.get((where, pins)):
                    found += [each for each in terms if each.term.match.matches(namespace, labels, namespaces)]
        if len(found) > 1:
            found.sort(key=self._numbers.__getitem__)
        return tuple(found)


def _places(term: ExistingTerm) -> list[tuple[str | None, tuple[str, str] | None]]:
    match = term.term.match
    pins = match.selector.pins if match.selector is not None else None
    if match.namespace_selector is not None:
        return [(None, pins)]
    return [(namespace, pins) for namespace in match.namespaces]
