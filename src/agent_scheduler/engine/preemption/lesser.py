"""Which nodes have pods of lower priority, and what these take there: one look at a column instead of a walk over pods.

Kept for each priority that somebody asked about, and brought up to date when it is asked about again: the rows that
changed since are counted anew from the pods on them. So a cluster in which nobody is refused pays nothing, and a
refused pod pays for what happened since the last one.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from ..columns import Ints
from ..ledger import Ledger
from ..podclass import PodClass

#: Priorities kept. A cluster has few, but anybody who may make priority classes chooses their number.
_KEPT = 8


class Lesser:
    """Pods of a priority below `priority`, by row, as they were at the last `refresh`."""

    __slots__ = ("_priority", "_sequence", "pods", "usage")

    def __init__(self, priority: int) -> None:
        self._priority = priority
        self._sequence = -1
        #: [row] how many there are.
        self.pods: Ints = np.zeros(0, dtype=np.int64)
        #: [2, resource, row] what they take, as `Columns.usage`.
        self.usage: Ints = np.zeros((2, 0, 0), dtype=np.int64)

    def refresh(self, ledger: Ledger) -> None:
        if ledger.sequence == self._sequence:
            return
        shape = ledger.columns.usage.shape
        rows: list[int] | range | None = ledger.rows_since(self._sequence) if self._sequence >= 0 else None
        if rows is None or shape != self.usage.shape:
            self.pods = np.zeros(shape[2], dtype=np.int64)
            self.usage = np.zeros(shape, dtype=np.int64)
            rows = range(ledger.columns.size)
        self._sequence = ledger.sequence
        for row in rows:
            self._count(ledger, row)

    def _count(self, ledger: Ledger, row: int) -> None:
        node = ledger.columns.nodes[row]
        classes: dict[PodClass, int] = {}
        if node is not None:
            for placement in ledger.pods_on(node.name):
                if placement.pod.priority < self._priority:
                    classes[placement.cls] = classes.get(placement.cls, 0) + 1
        number = sum(classes.values())
        if not number and not self.pods.item(row):
            return
        self.pods[row] = number
        self.usage[:, :, row] = 0
        for cls, times in classes.items():
            self.usage[:, :, row] += times * ledger.amounts(cls)


class LesserPods:
    """Owner of the counts of one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: OrderedDict[int, Lesser] = OrderedDict()

    def than(self, priority: int) -> Lesser:
        """True for the ledger as it is now."""
        found = self._kept.get(priority)
        if found is None:
            found = self._kept[priority] = Lesser(priority)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(priority)
        found.refresh(self._ledger)
        return found
