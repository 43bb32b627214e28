"""Sums over topology domains: counts on the nodes that share a value of a label.

Few of the counts change from one query to the next. So sums are kept with the counts that they were computed from, and
only differences are added. Rows that may have changed are in a log; if these are many, comparing all counts still costs
only a tenth of summing them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ..state.columns import Columns, Ints, Rows
from ..state.rowlog import RowLog

#: Up to this number changed counts are added one by one; with more all are summed again.
_ONE_BY_ONE: Final = 32

#: Columns of counts whose sums are kept.
_SUMS_KEPT: Final = 64


@dataclass(slots=True)
class _CachedSums:
    """Sums of `counts`, a column that is referenced as long as this exists."""

    counts: Ints
    #: The counts that were added, and their sums.
    before: Ints
    sums: Ints
    #: The position up to which the log has been read.
    position: int


class Domains:
    """The domains of one topology key. `of[row]` is the row's domain, from 1 up; 0 if it has none."""

    __slots__ = ("_asked", "_distinct", "_here", "_kept", "_marks", "_single", "_span", "of")

    def __init__(self, of: Ints, span: int = 0) -> None:
        """Store the domains; `span` is one more than the largest possible domain, by default the largest present."""
        self.of = of
        self._span = span or int(of.max(initial=0)) + 1
        #: The rows of the last query, and their domains.
        self._asked: Rows | None = None
        self._here: Ints = of
        #: The number of these domains; None before the first query.
        self._distinct: int | None = None
        #: Sums by the identity of the columns.
        self._kept: dict[int, _CachedSums] = {}
        self._marks: Ints | None = None
        #: Whether no two rows share a domain. Like the marks, None before the first query.
        self._single: bool | None = None

    @staticmethod
    def along(key: str, nodes: Columns) -> Domains:
        """Return the domains of a label on the current nodes."""
        return nodes.derive(("domains", key), lambda: Domains(_numbered(nodes.label(key)[: nodes.size])))

    def here(self, rows: Rows) -> Ints:
        """Return the domain of each of `rows`.

        Cached for repeated queries: neither it nor the rows may be written to.
        """
        if rows is not self._asked:
            self._asked, self._here, self._distinct = rows, self.of[rows], None
        return self._here

    def distinct(self, rows: Rows) -> int:
        """Return the number of domains of `rows`, where no domain counts as one."""
        here = self.here(rows)
        if self._distinct is None:
            seen = np.zeros(self._span, dtype=np.bool_)
            seen[here] = True
            self._distinct = int(np.count_nonzero(seen))
        return self._distinct

    def marks(self) -> Ints:
        """Return [row] 1 if it has a domain, otherwise 0. Always the same array."""
        if self._marks is None:
            self._marks = (self.of != 0).astype(np.int64)
        return self._marks

    def facets(self, counts: Ints) -> tuple[Ints, ...]:
        """Return [row] facets that determine the sum of `counts` in a row's domain, and whether it has one.

        If nodes are domains these are the counts, because nodes with equal counts are interchangeable; otherwise the
        domains.
        """
        return (self.marks(), counts) if self._are_rows() else (self.of,)

    def _are_rows(self) -> bool:
        if self._single is None:
            self._single = bool(np.bincount(self.of)[1:].max(initial=0) <= 1)
        return self._single

    def sums(self, counts: Ints, changes: RowLog) -> Ints:
        """Return [domain] the sum of a column of counts; 0 for domain 0, which is none.

        Valid until the next call, which updates it in place. `changes` has the rows whose counts may have changed,
        always the same log for a column.
        """
        kept = self._kept.get(id(counts))
        if kept is None:
            if len(self._kept) >= _SUMS_KEPT:
                self._kept.clear()
            before = counts[: self.of.shape[0]].copy()
            kept = self._kept[id(counts)] = _CachedSums(counts, before, self._summed(before), changes.end)
        elif kept.position != changes.end:
            self._bring_up_to_date(kept, changes)
        return kept.sums

    def _bring_up_to_date(self, kept: _CachedSums, changes: RowLog) -> None:
        counts, before, sums = kept.counts, kept.before, kept.sums
        rows = changes.since(kept.position) if changes.end - kept.position <= _ONE_BY_ONE else None
        kept.position = changes.end
        if rows is None:
            rows = (counts[: before.shape[0]] != before).nonzero()[0].tolist()
            if len(rows) > _ONE_BY_ONE:
                before[:] = counts[: before.shape[0]]
                sums[:] = self._summed(before)
                return
        # A domain may occur more than once, so they are not added all at once.
        for row in rows:
            count = counts.item(row)
            more = count - before.item(row)
            if more:
                before[row] = count
                domain = self.of.item(row)
                if domain:
                    sums[domain] += more

    def _summed(self, counts: Ints) -> Ints:
        # Floats are exact here: no sum of pods comes near 2**53.
        found: Ints = np.bincount(self.of, weights=counts, minlength=self._span).astype(np.int64)
        found[0] = 0
        return found


def _numbered(values: Ints) -> Ints:
    """Renumber the values as 1, 2 and so on, so that sums take little space."""
    there, places = np.unique(values, return_inverse=True)
    numbered: Ints = places if there.shape[0] and there[0] == 0 else places + 1
    return numbered
