"""Sums over topology domains: what stands on the nodes that share a value of a label.

Of the counts that are summed few change from one question to the next. So sums are kept, with the counts that they
were made of, and only what differs is added: to compare costs a tenth of adding all up.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from .columns import Columns, Ints, Rows

#: Counts that are added one by one; after more all are added up.
_ONE_BY_ONE: Final = 32

#: Columns of counts whose sums are kept.
_SUMS_KEPT: Final = 64


class Domains:
    """The domains of one topology key. `of[row]` is the row's domain, from 1 up; 0 where it has none."""

    __slots__ = ("_asked", "_here", "_kept", "_marks", "_single", "_span", "of")

    def __init__(self, of: Ints, span: int = 0) -> None:
        """`span`: one more than the largest domain that is asked about; by default than the largest there is."""
        self.of = of
        self._span = span or int(of.max(initial=0)) + 1
        #: The rows that were asked about last, and their domains.
        self._asked: Rows | None = None
        self._here: Ints = of
        #: Counts as they were, and their sums, by the identity of who is counted. That it may be another's by now does
        #: no harm: what is compared are the counts.
        self._kept: dict[int, tuple[Ints, Ints]] = {}
        self._marks: Ints | None = None
        #: Whether no two rows share a domain. Like the marks, None until somebody asks.
        self._single: bool | None = None

    @staticmethod
    def along(key: str, nodes: Columns) -> Domains:
        """Those of a label, as the nodes are."""
        return nodes.derive(("domains", key), lambda: Domains(_numbered(nodes.label(key)[: nodes.size])))

    def here(self, rows: Rows) -> Ints:
        """The domain of each of `rows`. Kept, as the same are asked about again and again: not to be written to, and
        neither are the rows."""
        if rows is not self._asked:
            self._asked, self._here = rows, self.of[rows]
        return self._here

    def marks(self) -> Ints:
        """[row] 1 where it has a domain, else 0. Always the same array."""
        if self._marks is None:
            self._marks = (self.of != 0).astype(np.int64)
        return self._marks

    def facets(self, counts: Ints) -> tuple[Ints, ...]:
        """[row] numbers of which the sum of `counts` in a row's domain is made, and whether it has one.

        Where nodes are domains these are the counts, as nodes with as many pods are alike; else the domains.
        """
        return (self.marks(), counts) if self._are_rows() else (self.of,)

    def _are_rows(self) -> bool:
        if self._single is None:
            self._single = bool(np.bincount(self.of)[1:].max(initial=0) <= 1)
        return self._single

    def sums(self, who: object, counts: Ints) -> Ints:
        """[domain] sum of the column that counts `who`; 0 for domain 0, which is none. To be read at once: it is
        brought up to date in place."""
        counts = counts[: self.of.shape[0]]
        kept = self._kept.get(id(who))
        if kept is None:
            if len(self._kept) >= _SUMS_KEPT:
                self._kept.clear()
            kept = self._kept[id(who)] = (counts.copy(), self._summed(counts))
            return kept[1]
        before, sums = kept
        differs = counts != before
        many = np.count_nonzero(differs)
        if many > _ONE_BY_ONE:
            before[:] = counts
            sums[:] = self._summed(counts)
        elif many:
            # Mostly it is one, which is found sooner than all. A domain may be there more than once, so they are not
            # added all at once.
            for row in (differs.argmax(),) if many == 1 else differs.nonzero()[0].tolist():
                sums[self.of[row]] += counts[row] - before[row]
                before[row] = counts[row]
            sums[0] = 0
        return sums

    def _summed(self, counts: Ints) -> Ints:
        # Floats are exact here: no sum of pods comes near 2**53.
        found: Ints = np.bincount(self.of, weights=counts, minlength=self._span).astype(np.int64)
        found[0] = 0
        return found


def _numbered(values: Ints) -> Ints:
    """The same with the numbers 1, 2 and so on in the place of those that there are, so that sums take little room."""
    there, places = np.unique(values, return_inverse=True)
    numbered: Ints = places if there.shape[0] and there[0] == 0 else places + 1
    return numbered
