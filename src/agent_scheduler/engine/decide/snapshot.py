"""What one scheduling cycle sees: a copy of the ledger's columns that nothing else writes.

Workers share one snapshot, and each refreshes it at the start of a cycle, never within. The cost is that of the rows
changed since its last refresh, so an idle cluster costs nothing and 100,000 nodes cost no more than ten.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from ..framework.handle import Handle
from ..state.columns import Columns
from ..state.ledger import Ledger
from ..state.podcounts import PodsMatching
from ..state.podterms import ExistingTerm
from ..state.rowlog import RowLog
from .capacity_classes import CapacityClasses


class Hypothetical(Protocol):
    """What is thought to be otherwise than the ledger says."""

    @property
    def is_empty(self) -> bool: ...

    @property
    def terms(self) -> Collection[ExistingTerm]:
        """Those whose columns are still needed."""

    def count_anew(self, kinds: Sequence[PodsMatching]) -> None:
        """Columns of these kinds were copied from the ledger."""


class Snapshot:
    """Columns as of change number `sequence`, and which rows each refresh touched."""

    def __init__(self, ledger: Ledger, handle: Handle | None = None) -> None:
        self._ledger = ledger
        self.handle = handle or Handle(ledger)
        self.columns = Columns(ledger.columns.interns)
        self.sequence = 0
        #: Which columns of counts there are: while it is the same, they are the same arrays.
        self.counts_version = 0
        #: The ledger's, as far as it is followed.
        self._counts_seen = 0
        #: What is hypothetical here; None where nobody asks for more than `preemption` does.
        self.trial: Hypothetical | None = None
        #: Rows touched, in refresh order; a class view that is behind reads its part. As the ledger's log, but private:
        #: a view must see the snapshot's rows, not newer ones.
        self.touched = RowLog()
        #: Those of them whose node changed.
        self.respecified = RowLog()
        #: Names how often resources or rows have grown, which makes every view rebuild.
        self.shape = (0, 0)
        self._capacity_classes = CapacityClasses()
        self.refresh()

    def refresh(self) -> bool:
        """Catch up with the ledger. Returns whether anything had changed. Nothing may be hypothetical."""
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
        """Up to date with the snapshot."""
        self._capacity_classes.refresh(self.columns, self.touched)
        return self._capacity_classes

    def take_new_counts(self) -> None:
        """Copy the columns of what has been counted only since the last refresh, and drop those of what is no more."""
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
        """Have the next refresh drop columns of terms that the ledger does not have."""
        self._counts_seen = -1
