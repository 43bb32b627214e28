"""A log of changed rows, in order, so that a reader with a value per row recomputes only these.

The log is bounded: for a reader that is too far behind, every row may have changed.
"""

from __future__ import annotations

from collections.abc import Sequence


class RowLog:
    """The changed rows in order. A position is the number of changes before it; positions never repeat."""

    def __init__(self, limit: int = 1 << 16) -> None:
        self._limit = limit
        #: Entry i is change number `_start + i`.
        self._rows: list[int] = []
        self._start = 0
        #: The number of the next change, from which a current reader continues.
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
        """Discard the oldest `changes` entries."""
        del self._rows[:changes]
        self._start += changes

    def since(self, position: int) -> list[int] | None:
        """Return the rows changed from change number `position` on, each once; None if the log no longer has them."""
        start = position - self._start
        if start < 0:
            return None
        rows = self._rows[start:]
        return rows if len(rows) < 2 else list(dict.fromkeys(rows))
