"""Potential victims: the pods of lower priority by node, and their amounts in columns.

Kept for each priority that was asked about, and updated row by row on demand: a changed row is counted again from its
pods. So a cluster without refused pods has no cost, a refused pod costs the changes since the last one, and the first
costs only the nodes that it examines.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ..ledger import Ledger
from ..state.columns import NOBODY, Bools, Ints, Rows
from ..state.podclass import PodClass
from ..state.podinfo import PodInfo
from .pdbs import PDBs

#: Priorities kept. A cluster usually has few, but users may create priority classes.
_KEPT = 8

#: Later than any start: a pod that has not started counts as starting now.
_NOT_YET: Final = "~"


def started(pod: PodInfo) -> str:
    """Return the start of a pod; a lower value is the longer running."""
    return pod.started or _NOT_YET


def importance(pod: PodInfo) -> tuple[int, str]:
    """Return the sort key of a pod, lower for the more important: priority, then the longer running."""
    return -pod.priority, started(pod)


class NodeVictims(NamedTuple):
    """The pods of lower priority on a node, the most important first."""

    pods: tuple[PodInfo, ...]
    #: [pod, 2, resource], as in `Ledger.amounts`.
    amounts: Ints


class VictimsBelow:
    """Pods of a priority below `priority` by row, as of the last `refresh`, on rows that `count` covered since."""

    def __init__(self, priority: int, ledger: Ledger) -> None:
        self._priority = priority
        self._ledger = ledger
        self._sequence = -1
        #: Row -> (its version, its pods at that version). Only rows that were asked about.
        self._listed: dict[int, tuple[tuple[int, int], NodeVictims]] = {}
        #: Row -> ((its version, that of the PDBs), the result of `violating` at these).
        self._violating: dict[int, tuple[tuple[tuple[int, int], int], frozenset[str]]] = {}
        #: [row] whether `pods` and `usage` are current.
        self._counted: Bools = np.zeros(0, dtype=np.bool_)
        #: [row] the number of pods.
        self.pods: Ints = np.zeros(0, dtype=np.int64)
        #: [2, resource, row] the amounts that they take, as in `Columns.usage`.
        self.usage: Ints = np.zeros((2, 0, 0), dtype=np.int64)

    def refresh(self) -> None:
        ledger = self._ledger
        if ledger.sequence == self._sequence:
            return
        shape = (2, ledger.columns.resources, ledger.columns.capacity)
        rows = ledger.rows_since(self._sequence) if self._sequence >= 0 else None
        self._sequence = ledger.sequence
        if rows is None or shape != self.usage.shape:
            self._counted = np.zeros(shape[2], dtype=np.bool_)
            self.pods = np.zeros(shape[2], dtype=np.int64)
            self.usage = np.zeros(shape, dtype=np.int64)
            self._listed.clear()
            self._violating.clear()
        else:
            self._counted[rows] = False

    def is_empty(self) -> bool:
        """Return whether no row has such a pod."""
        return self._ledger.lowest_priority >= self._priority

    def count(self, rows: Rows) -> None:
        """Update `pods` and `usage` of these rows."""
        rows = rows[~self._counted[rows]]
        if not rows.size:
            return
        self._counted[rows] = True
        self.pods[rows] = 0
        self.usage[:, :, rows] = 0
        classes: dict[PodClass, int] = {}
        #: The index of the class of each pod; and for each row with pods the index of its first pod there.
        places: list[int] = []
        begins: list[int] = []
        taken: list[int] = []
        for row in rows.tolist():
            there = self._there(row)
            if there:
                taken.append(row)
                begins.append(len(places))
                places += [classes.setdefault(pod.cls, len(classes)) for pod in there]
        if taken:
            amounts = self._ledger.amounts(classes)
            self.usage[:, :, taken] = np.add.reduceat(amounts[places], begins, axis=0).transpose(1, 2, 0)
            self.pods[taken] = np.diff(begins, append=len(places))

    def _there(self, row: int) -> list[PodInfo]:
        node = self._ledger.columns.nodes[row]
        if node is None:
            return []
        priority = self._priority
        return [placement.pod for placement in self._ledger.pods_on(node.name) if placement.pod.priority < priority]

    def _version(self, row: int) -> tuple[int, int]:
        """Return the version of the pods on a row and of their last observed state."""
        columns = self._ledger.columns
        node = columns.nodes[row]
        looks = 0 if node is None else self._ledger.looks.get(node.name, 0)
        return columns.version[row], looks

    def on_row(self, row: int) -> NodeVictims:
        """Return the potential victims on a row that has any."""
        (found,) = self.on_rows((row,))
        return found

    def on_rows(self, rows: Sequence[int]) -> list[NodeVictims]:
        """Return `on_row` of each of `rows`."""
        kept, version_of = self._listed, self._version
        found = []
        for row in rows:
            version, entry = version_of(row), kept.get(row)
            if entry is None or entry[0] != version:
                entry = kept[row] = version, self._list(row)
            found.append(entry[1])
        return found

    def _list(self, row: int) -> NodeVictims:
        pods = tuple(sorted(self._there(row), key=importance))
        return NodeVictims(pods, self._ledger.amounts(pod.cls for pod in pods))

    def violating(self, row: int, pdbs: PDBs) -> frozenset[str]:
        """Return the UIDs of pods on a row whose eviction a PDB no longer allows if all are evicted."""
        if not pdbs:
            return NOBODY
        version = self._version(row), pdbs.version
        found = self._violating.get(row)
        if found is None or found[0] != version:
            found = self._violating[row] = version, pdbs.violating(self.on_row(row).pods)
        return found[1]


class PotentialVictims:
    """Owns the counts of one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: OrderedDict[int, VictimsBelow] = OrderedDict()

    def below(self, priority: int) -> VictimsBelow:
        """Return the counts below a priority, refreshed to the ledger."""
        found = self._kept.get(priority)
        if found is None:
            found = self._kept[priority] = VictimsBelow(priority, self._ledger)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(priority)
        found.refresh()
        return found
