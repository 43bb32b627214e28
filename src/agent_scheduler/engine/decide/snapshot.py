"""The state that one scheduling cycle reads: a copy of the ledger's columns that only its snapshot writes.

Workers share one snapshot, and each refreshes it at the start of a cycle, never within one. A refresh costs as much as
the rows changed since the last one, so an idle cluster costs nothing, whatever its number of nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from ..framework.handle import Handle
from ..ledger import Ledger
from ..state.columns import Columns
from ..state.podclass import PodClass
from ..state.podcounts import PodsMatching
from ..state.podterms import ExistingTerm
from ..state.rowlog import RowLog
from .budget import excess
from .capacity_classes import CapacityClasses


class Hypothetical(Protocol):
    """Hypothetical differences from the ledger."""

    @property
    def is_empty(self) -> bool: ...

    @property
    def terms(self) -> Collection[ExistingTerm]:
        """The terms whose columns are still needed."""

    def count_anew(self, kinds: Sequence[PodsMatching]) -> None:
        """Apply the hypothetical pods to columns of these kinds, which were copied from the ledger."""


class Snapshot:
    """Columns as of change number `sequence`, and the rows that each refresh touched."""

    def __init__(self, ledger: Ledger, handle: Handle) -> None:
        self._ledger = ledger
        self.handle = handle
        self.columns = Columns(ledger.columns.interns)
        self.sequence = 0
        #: The version of the set of counts: while it is unchanged, their columns are the same arrays.
        self.counts_version = 0
        #: The ledger's version that has been applied.
        self._counts_seen = 0
        #: The hypothetical pods here; None if no component but `preemption` places any.
        self.trial: Hypothetical | None = None
        #: Rows touched, in the order of refreshes; an outdated class view reads its part. Separate from the ledger's
        #: log because a view must see the snapshot's rows, not newer ones.
        self.touched = RowLog()
        #: Those of the touched rows whose node changed.
        self.respecified = RowLog()
        #: Changes when the number of resources or rows grows, which makes every view rebuild.
        self.shape = (0, 0)
        self._capacity_classes = CapacityClasses()
        self.refresh()

    def refresh(self) -> bool:
        """Apply the ledger's changes. Return whether there were any. Nothing may be hypothetical."""
        ledger, columns = self._ledger, self.columns
        if ledger.counts_version != self._counts_seen:
            self.take_new_counts()
        sequence = ledger.sequence
        if sequence == self.sequence:
            return False
        assert self.trial is None or self.trial.is_empty, "rows are not copied under a trial"
        rows = ledger.rows_since(self.sequence)
        if rows is None:
            rows = list(range(ledger.columns.size))
        self.sequence = sequence
        respecified = columns.copy_rows(ledger.columns, rows)
        if respecified:
            self.respecified.extend(respecified)
            self.shape = (columns.resources, columns.capacity)
        self.touched.extend(rows)
        return True

    @property
    def capacity_classes(self) -> CapacityClasses:
        """The capacity classes, refreshed to the snapshot."""
        self._capacity_classes.refresh(self.columns, self.touched)
        return self._capacity_classes

    def excess(self, pod: PodClass) -> str:
        """Return why a decision on the class would exceed the budget; empty if it would not."""
        return excess(pod, self._ledger)

    def take_new_counts(self) -> None:
        """Copy the columns of counts that were added since the last refresh, and drop those that were removed."""
        version = self._ledger.counts_version
        if version == self._counts_seen:
            return
        self._counts_seen = version
        self.counts_version += 1
        if self.trial is None:
            self.columns.copy_counts(self._ledger.columns)
        else:
            self.trial.count_anew(self.columns.copy_counts(self._ledger.columns, keep=self.trial.terms))

    def forget_counts(self) -> None:
        """Make the next refresh drop columns of terms that the ledger does not have."""
        self._counts_seen = -1
