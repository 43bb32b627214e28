"""Maps resources, taint lists and label values to small numbers, so that columns compare numbers, not strings."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from .nodeinfo import Taints
from .podclass import PODS

#: Resources of every cluster; others get the next free number when a node first has them.
BASE_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage", PODS)

#: The number of nodes, in addition to a quarter of all nodes, that may be deleted or changed before a renumbering.
_DROPPED_AT_LEAST: Final = 256


class Interns:
    """Assigns numbers to resources, taint lists and label values; shared by the ledger and snapshots.

    Taint lists and label values are renumbered after many nodes were deleted or changed, since they often contain names
    and times that no node will have again. Within one `generation`, each number has one meaning.
    """

    def __init__(self) -> None:
        self.resources: dict[str, int] = {name: index for index, name in enumerate(BASE_RESOURCES)}
        self.generation = 0
        #: The labels that distinguish nodes with equal allocatable and used amounts: all that plugins have named.
        self.telling_labels: tuple[str, ...] = ()
        self._told_apart: dict[Hashable, frozenset[str]] = {}
        #: The number of nodes that were deleted or got other taints or labels since the last renumbering.
        self._dropped = 0
        self._forget()

    def tell_apart(self, who: Hashable, labels: frozenset[str]) -> None:
        """Distinguish nodes with different values of these labels; they replace the earlier labels of `who`."""
        if self._told_apart.get(who, frozenset()) != labels:
            self._told_apart[who] = labels
            self.telling_labels = tuple(sorted(frozenset().union(*self._told_apart.values())))

    def drop(self, nodes: int) -> None:
        """Note that one of `nodes` nodes was deleted or got other taints or labels, so numbers may be unused now."""
        self._dropped += 1
        if self._dropped > _DROPPED_AT_LEAST + nodes // 4:
            self.generation += 1
            self._forget()

    def _forget(self) -> None:
        self._dropped = 0
        self._taint_ids: dict[Taints, int] = {(): 0}
        #: Taint list by id; id 0 is the empty list.
        self.taints: list[Taints] = [()]
        self._value_ids: dict[str, int] = {}
        #: Label value by id - 1; id 0 means that the label is absent.
        self.values: list[str] = []

    def resource(self, name: str) -> int:
        return self.resources.setdefault(name, len(self.resources))

    def taint_id(self, taints: Taints) -> int:
        found = self._taint_ids.get(taints)
        if found is None:
            found = self._taint_ids[taints] = len(self.taints)
            self.taints.append(taints)
        return found

    def value_id(self, value: str) -> int:
        """Return the id of a label value; a new value gets one."""
        found = self._value_ids.get(value)
        if found is None:
            self.values.append(value)
            found = self._value_ids[value] = len(self.values)
        return found

    def known_value(self, value: str) -> int:
        """Return the id of a label value, or -1 if no column contains it. Build the label's column before."""
        return self._value_ids.get(value, -1)
