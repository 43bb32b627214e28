"""Counts of pods per row that match the terms of other pods.

Rules across nodes (pod affinity, topology spread) need the number of matching pods in a topology domain. The ledger
keeps one column for each kind of pods that a plugin asks about, and updates it with each pod. So an answer is a sum
over a column, without iterating over pods. In a cluster of plain pods there is no such column.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
from numpy.typing import NDArray

from apimachinery.labels import Labels

from .indexes import drop_entry
from .namespaces import Namespaces
from .podinfo import PodInfo
from .podterms import ExistingTerm, PodMatch

Ints = NDArray[np.int64]

#: Where an index has what may match a pod: a namespace and a label (key, value); None for what a match leaves open.
Place = tuple[str | None, tuple[str, str] | None]

#: The number of places without kinds that an index may have in addition to twice the number of kinds.
_EMPTY_PLACES: Final = 1024


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


class KindColumns(WeakKeyDictionary[PodsMatching, Ints]):
    """Columns by kind, each while the kind is referenced.

    Kinds are indexed like terms in `TermIndex`, so a pod is compared with few of them, however many others' pods need.
    """

    def __init__(self) -> None:
        super().__init__()
        self._index: dict[Place, WeakSet[PodsMatching]] = {}

    def __setitem__(self, kind: PodsMatching, column: Ints) -> None:
        if kind not in self:
            for place in _places(kind.matches[0]):
                self._index.setdefault(place, WeakSet()).add(kind)
            if len(self._index) > 2 * len(self) + _EMPTY_PLACES:
                self._index = {place: kinds for place, kinds in self._index.items() if kinds}
        super().__setitem__(kind, column)

    def counting(self, pod: PodInfo) -> list[PodsMatching]:
        """Return the kinds that count a pod."""
        index, found = self._index, []
        for where in (pod.namespace, None):
            for pins in (None, *pod.labels.items()):
                if kinds := index.get((where, pins)):
                    found += [kind for kind in kinds if kind.counts(pod)]
        return found


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
        self._index: dict[Place, dict[ExistingTerm, None]] = {}

    def __contains__(self, term: ExistingTerm) -> bool:
        return term in self.counts

    def add(self, term: ExistingTerm) -> bool:
        """Add an occurrence of a term. Returns whether it is the first."""
        count = self.counts.get(term, 0)
        self.counts[term] = count + 1
        if not count:
            self.version += 1
            self._numbers[term] = next(self._next)
            for place in _places(term.term.match):
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
        for place in _places(term.term.match):
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


def _places(match: PodMatch) -> list[Place]:
    pins = match.selector.pins if match.selector is not None else None
    if match.namespace_selector is not None:
        return [(None, pins)]
    return [(namespace, pins) for namespace in match.namespaces]
