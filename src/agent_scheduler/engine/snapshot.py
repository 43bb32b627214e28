"""What one scheduling cycle sees: a copy of the ledger's columns that nobody else writes.

Workers share one snapshot, and each refreshes it at the start of a cycle, never within. The cost is that of the rows
changed since its last refresh, so an idle cluster costs nothing and 100,000 nodes cost no more than ten.
"""

from __future__ import annotations

from .columns import Columns
from .handle import Handle
from .ledger import Ledger


class Snapshot:
    """Columns as of change number `sequence`, and which rows each refresh touched."""

    def __init__(self, ledger: Ledger, handle: Handle | None = None) -> None:
        self._ledger = ledger
        self.handle = handle or Handle(ledger)
        self.columns = Columns(ledger.columns.interns)
        self.sequence = 0
        self._counts_version = 0
        #: Rows touched, in refresh order; a class view that is behind reads its part. Same bound and meaning
        #: as the ledger's log, but private: a view must see the snapshot's rows, not newer ones.
        self._touched: list[int] = []
        self._touched_start = 0
        #: Names how often resources or rows have grown, which makes every view rebuild.
        self.shape = (0, 0)
        self.refresh()

    def refresh(self) -> bool:
        """Catch up with the ledger. Returns whether anything had changed."""
        ledger = self._ledger
        if ledger.counts_version != self._counts_version:
            self.take_new_counts()
        if ledger.sequence == self.sequence:
            return False
        rows = ledger.rows_since(self.sequence)
        if rows is None:
            rows = list(range(ledger.columns.size))
        self.sequence = ledger.sequence
        self.columns.copy_rows(ledger.columns, rows)
        self.shape = (self.columns.allocatable.shape[0], self.columns.capacity)
        self._touched.extend(rows)
        if len(self._touched) > 1 << 16:
            dropped = len(self._touched) // 2
            del self._touched[:dropped]
            self._touched_start += dropped
        return True

    def take_new_counts(self) -> None:
        """Copy the columns of what has been counted only since the last refresh, and drop those of what is no more."""
        if self._ledger.counts_version != self._counts_version:
            self._counts_version = self._ledger.counts_version
            self.columns.copy_counts(self._ledger.columns)

    @property
    def position(self) -> int:
        """Where a view that is up to date now has to go on reading."""
        return self._touched_start + len(self._touched)

    def rows_since(self, position: int) -> list[int] | None:
        """Rows touched since `position`, each once; None if too long ago to tell."""
        start = position - self._touched_start
        if start < 0:
            return None
        rows = self._touched[start:]
        return rows if len(rows) < 2 else list(dict.fromkeys(rows))
