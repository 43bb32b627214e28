"""Pods counted by what they are to other pods: how many of a kind stand on each row.

Rules that look across nodes (pod affinity, topology spread) ask "how many such pods are there in this domain". The
ledger keeps one column for each kind that a plugin asks about, in step with its pods, so that an answer is a sum over
a column and never a walk over pods. Otherwise nothing is counted: a cluster of plain pods has no such column.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from .indexes import drop_entry
from .labelselector import Labels
from .namespaces import Namespaces
from .podinfo import PodInfo
from .podterms import ExistingTerm, PodMatch

if TYPE_CHECKING:
    from .columns import Columns


class PodsMatching:
    """Pods that every one of `matches` means; these are resolved.

    Equal only to itself: its column lives for as long as it is held.
    """

    __slots__ = ("__weakref__", "_last", "alive_only", "matches")

    def __init__(self, matches: Iterable[PodMatch], *, alive_only: bool = False) -> None:
        """`alive_only`: those that are being deleted do not count."""
        self.matches = tuple(matches)
        self.alive_only = alive_only
        assert all(each.is_resolved for each in self.matches), "resolve it first"
        #: Namespace and labels that were asked about last, and the answer: pods come in bursts that have the same.
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
    """Every term of the pods that are placed, and how many have it. Owner: the ledger.

    Found again by the namespace and a label that its selector asks for, so that a pod is compared with few of them.
    """

    def __init__(self) -> None:
        #: Term -> on how many pods, one for each time that it stands there. To be read.
        self.counts: dict[ExistingTerm, int] = {}
        #: Term -> its place among all that there are; given anew to one that comes back.
        self._numbers: dict[ExistingTerm, int] = {}
        self._next = itertools.count()
        #: Rises whenever `matching` may answer otherwise.
        self.version = 0
        #: Where to look for a term: (namespace, key, value), with None for what it does not pin down.
        self._index: dict[tuple[str | None, tuple[str, str] | None], dict[ExistingTerm, None]] = {}

    def __contains__(self, term: ExistingTerm) -> bool:
        return term in self.counts

    def add(self, term: ExistingTerm) -> bool:
        """Returns whether it is the first."""
        count = self.counts.get(term, 0)
        self.counts[term] = count + 1
        if not count:
            self.version += 1
            self._numbers[term] = next(self._next)
            for place in _places(term):
                self._index.setdefault(place, {})[term] = None
        return not count

    def remove(self, term: ExistingTerm) -> bool:
        """Returns whether it was the last."""
        count = self.counts[term]
        if count > 1:
            self.counts[term] = count - 1
            return False
        self.version += 1
        del self.counts[term], self._numbers[term]
        for place in _places(term):
            drop_entry(self._index, place, term)
        return True

    def count(self, columns: Columns, pod: PodInfo, row: int | None, sign: int) -> int:
        """Count in `columns` a pod that is placed (1) or leaves (-1), on a row or on a node that is not known. Gives
        how many columns of counts came or went."""
        existing, changed = pod.cls.existing, 0
        for term in existing if sign > 0 else ():
            if self.add(term):
                changed += 1
                columns.terms[term] = np.zeros(columns.capacity, dtype=np.int64)
        if row is not None:
            columns.count_others(row, pod, sign)
        for term in existing if sign < 0 else ():
            if self.remove(term):
                changed += 1
                del columns.terms[term]
        return changed

    def matching(self, namespace: str, labels: Labels, namespaces: Namespaces) -> tuple[ExistingTerm, ...]:
        """The terms that match a pod with these labels; equal sets of terms in equal order."""
        if not self.counts:
            return ()
        found: list[ExistingTerm] = []
        index = self._index
        # A term is met once: it stands by one label, or none, and by its namespaces, or none.
        for pins in (None, *labels.items()):
            for where in (namespace, None):
                if terms := index.get((where, pins)):
                    found += [
                        each for each in terms if each.term.match.matches(namespace, labels, namespaces)
                    ]
        if len(found) > 1:
            found.sort(key=self._numbers.__getitem__)
        return tuple(found)


def _places(term: ExistingTerm) -> list[tuple[str | None, tuple[str, str] | None]]:
    match = term.term.match
    pins = match.selector.pins if match.selector is not None else None
    if match.namespace_selector is not None:
        return [(None, pins)]
    return [(namespace, pins) for namespace in match.namespaces]
