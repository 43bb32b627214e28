"""Which rows changed, in order, so that a reader that keeps something for each row asks about those alone.

Bounded: of a reader that is too far behind all that is known is that anything may have changed.
"""

from __future__ import annotations

from collections.abc import Sequence


class RowLog:
    """Rows as they changed. A position is a number of changes since the beginning, and is never given twice."""

    def __init__(self, limit: int = 1 << 16) -> None:
        self._limit = limit
        #: Entry i is change number `_start + i`.
        self._rows: list[int] = []
        self._start = 0
        #: The number of the next change: where a reader that is up to date has to go on.
        self.end = 0

    def extend(self, rows: Sequence[int]) -> None:
        self._rows += rows
        self.end += len(rows)
        if len(self._rows) > self._limit:
            self.forget(len(self._rows) // 2)

    def append(self, row: int) -> None:
        self._rows.append(row)
        self.end += 1
        if len(self._rows) > self._limit:
            self.forget(len(self._rows) // 2)

    def forget(self, changes: int) -> None:
        """The oldest so many."""
        del self._rows[:changes]
        self._start += changes

    def since(self, position: int) -> list[int] | None:
        """Rows changed from change number `position` on, each once; None if too long ago to tell."""
        start = position - self._start
        if start < 0:
            return None
        rows = self._rows[start:]
        return rows if len(rows) < 2 else list(dict.fromkeys(rows))
